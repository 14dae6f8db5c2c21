package native_test

import (
	"testing"

	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/native"
	"github.com/dsh-agent/dsh/runtime/runtimetest"
)

func TestSuite(t *testing.T) {
	runtimetest.Run(t, func(testing.TB) runtime.Engine { return native.New(native.Options{Logs: true}) })
}

// TestSuiteOnInterpreter: the same guests, without the compiler.
func TestSuiteOnInterpreter(t *testing.T) {
	if testing.Short() {
		t.Skip("it is the suite once more")
	}
	runtimetest.Run(t, func(testing.TB) runtime.Engine {
		return native.New(native.Options{Logs: true, Interpreter: true})
	})
}

func TestHostile(t *testing.T) {
	runtimetest.Hostile(t, func(testing.TB) runtime.Engine { return native.New(native.Options{Logs: true}) }, 1)
}
