package main

import (
	"os"

	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/extism"
	"github.com/dsh-agent/dsh/runtime/native"
	"github.com/dsh-agent/dsh/runtime/worker"
)

// hasWorkers reports whether a policy can have a process of its own here.
const hasWorkers = worker.Supported

// isWorker reports whether the program was started by itself, to run a guest.
func isWorker(args []string) bool { return len(args) > 2 && args[1] == worker.Argument }

// work is all that such a program does. It returns the exit code.
func work(args []string) int {
	return worker.Main(args[3:], os.Stdin, os.Stdout, func() runtime.Engine { return workerEngine(args[2]) })
}

// isolated is what runs guests in processes of their own: this program, started
// again. nil: there is no such thing here.
func (p program) isolated(engine string) runtime.Engine {
	if !hasWorkers {
		return nil
	}
	return worker.New(worker.Options{Command: []string{executable(), worker.Argument, engine}, Engine: engine})
}

// workerEngine is what a worker runs its guest with. It keeps no compiled code:
// it has no folder to keep it in.
func workerEngine(name string) runtime.Engine {
	if name == extism.Name {
		return extism.New(extism.Options{Logs: true})
	}
	return native.New(native.Options{Logs: true})
}
