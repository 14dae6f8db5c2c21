// Command dsh runs turns with a model, and puts every failure of a request to
// policies that decide what becomes of it.
//
// This package wires the rooms together. It alone knows who is real, and it
// owns what a process has one of: signals, the standard streams, the lifetime
// of the store and of the policies.
package main

import (
	"context"
	"io"
	"log"
	"os"
	goruntime "runtime"
	"runtime/debug"

	"github.com/dsh-agent/dsh/internal/cli"
	"github.com/dsh-agent/dsh/internal/tools"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == supervise {
		os.Exit(tools.Supervise(os.Args[2:]))
	}
	os.Exit(run(program{env: os.LookupEnv}))
}

// run is main with an exit code, so that all it defers has been done. A panic
// of a goroutine that nobody guards shows its message and no stacks, unless
// GOTRACEBACK asks for them.
func run(p program) int {
	debug.SetTraceback("none")
	if isWorker(os.Args) {
		return work(os.Args)
	}
	collectLater()
	log.SetOutput(io.Discard) // net/http tells it what a broken server sent
	reload := make(chan struct{}, 1)
	p.reload = reload
	ctx, stop := watchSignals(context.Background(), os.Stderr, reload)
	defer stop()
	return cli.Run(ctx, os.Args[1:], p.commands(), cli.StandardStreams(os.Stdin, os.Stdout, os.Stderr, os.Getenv))
}

// collectLater puts the first garbage collection off from 4 MiB of heap to 32,
// of which the log's tables are half, untouched: most runs never come to it, and
// it costs them some milliseconds. After it collections are as usual. A GOGC that
// somebody has set stays.
func collectLater() {
	const first = 800 // percent of the 4 MiB at which the runtime begins
	if os.Getenv("GOGC") != "" {
		return
	}
	usual := debug.SetGCPercent(first)
	gone := new(*int) // a pointer in it: it does not share its block with others
	goruntime.AddCleanup(gone, func(percent int) { debug.SetGCPercent(percent) }, usual)
}
