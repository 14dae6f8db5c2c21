//go:build !wasip1

package sdk

// Outside of a guest there is no host. What decides is plain Go, so that `go
// test` can call it; every host function is refused there.

const refusal = `{"err":{"code":"unavailable","message":"there is no host outside of a guest"}}`

func logRead([]byte) []byte      { return []byte(refusal) }
func surfaceRead([]byte) []byte  { return []byte(refusal) }
func stateGetFunc([]byte) []byte { return []byte(refusal) }
func statePutFunc([]byte) []byte { return []byte(refusal) }
func emitFunc([]byte) []byte     { return []byte(refusal) }

func logInfo(string) {}

func input() []byte { return nil }

func output([]byte) {}

func fail(string) {}
