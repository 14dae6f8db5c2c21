//go:build wasip1

// Command retry-go is a recovery policy for dsh in Go, built with the plain
// toolchain:
//
//	GOOS=wasip1 GOARCH=wasm go build -trimpath -ldflags="-s -w" -buildmode=c-shared -o retry-go.wasm .
//
// It does what the built-in policy does, and imports nothing of dsh: the
// contract, dsh:policy/v1, is the few exports and imports below.
package main

import "encoding/json"

// main is never called: the module is a library.
func main() {}

// recoverFailure is the hook that every policy has: a model request failed.
// 0 says that the output is a decision.
//
//go:wasmexport recover
func recoverFailure() int32 {
	var in Input
	if err := json.Unmarshal(input(), &in); err != nil {
		return fail(err)
	}
	d, err := Decide(in)
	if err != nil {
		return fail(err)
	}
	return answer(d)
}

// checkConfig is asked at load. This policy takes no config: what it does is
// set at the provider, and comes with every input.
//
//go:wasmexport check_config
func checkConfig() int32 {
	var config map[string]json.RawMessage
	if err := json.Unmarshal(input(), &config); err != nil {
		return fail(err)
	}
	return answer(struct {
		Problems []string `json:"problems"`
	}{CheckConfig(config)})
}

// warm is called before there is anything to decide. Reading something once
// builds the tables that encoding/json makes of a type, which takes longer
// than a decision.
//
//go:wasmexport warm
func warm() int32 {
	var in Input
	if json.Unmarshal([]byte(`{"retryPolicy":{"mode":"normal"}}`), &in) != nil {
		return 1
	}
	d, err := Decide(in)
	if err != nil {
		return 1
	}
	if _, err := json.Marshal(d); err != nil {
		return 1
	}
	return 0
}

func answer(v any) int32 {
	b, err := json.Marshal(v)
	if err != nil {
		return fail(err)
	}
	at := store(b)
	outputSet(at, uint64(len(b)))
	return 0
}

func fail(err error) int32 {
	errorSet(store([]byte(err.Error())))
	return 1
}
