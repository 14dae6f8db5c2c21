//go:build !unix

package main

// hasTerminal is true: where there is no SIGHUP, what Go delivers as one is a
// console that was closed.
func hasTerminal() bool { return true }
