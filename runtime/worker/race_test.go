//go:build race

package worker_test

// raced says whether the race detector is built in.
const raced = true
