package worker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"

	"strconv"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/runtime"
)

// Argument is what a program is started with, before what a worker is told
// besides, to be a worker.
const Argument = "@worker"

// cpuLimit is the CPU time of a worker in all. One that has used a part of it
// is not used again, so that only what runs away meets it.
const cpuLimit = 2 * time.Minute

// memoryLimit is the memory of a worker in bytes: what compiling the largest
// module takes, and the guest's twice.
func memoryLimit(pages uint64) uint64 { return 768<<20 + 2*pages*64<<10 }

// Main is the worker's side. It gives up what the process does not need, serves
// the pipes in and out until in ends, and returns the exit code. arguments are
// those after Argument. engine makes the engine that runs the guest.
func Main(arguments []string, in io.Reader, out io.Writer, engine func() runtime.Engine) int {
	pages, err := uint64(0), errors.New("a worker is started by dsh alone")
	if len(arguments) == 1 {
		pages, err = strconv.ParseUint(arguments[0], 10, 32)
	}
	if err == nil {
		err = confine(memoryLimit(pages))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		return 2
	}
	debug.SetMemoryLimit(int64(memoryLimit(pages) / 2))
	messages := make(chan message)
	go func() {
		for {
			m, err := read(in, maxHead, maxBody)
			if err != nil {
				os.Exit(0) // nobody is there any more, whatever a guest still does
			}
			messages <- m
		}
	}()
	s := &server{engine: engine(), messages: messages, out: out}
	for m := range messages {
		if err := s.serve(m); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			return 1
		}
	}
	return 0
}

// server is a worker at work.
type server struct {
	engine   runtime.Engine
	messages <-chan message
	out      io.Writer
	program  runtime.Program
	instance runtime.Instance
}

func (s *server) serve(m message) error {
	// What is late is killed from outside, so that nothing here has a deadline.
	ctx := context.Background()
	var err error
	switch {
	case m.Kind == kindModule && m.Module != nil && s.program == nil:
		d := m.Module
		s.program, err = s.engine.Compile(ctx, runtime.Module{
			Wasm: m.body, Key: d.Key, Digest: d.Digest, Info: d.Info, Config: d.Config, MemoryPages: d.MemoryPages, HostCalls: d.HostCalls, CompileBytes: d.Compile,
		})
	case m.Kind == kindInstance && s.program != nil && s.instance == nil:
		s.instance, err = s.program.Instance(ctx)
	case m.Kind == kindFree && s.instance != nil:
		err = s.instance.Close()
		s.instance = nil
	case m.Kind == kindCall && m.Call != nil && s.instance != nil:
		return s.call(ctx, m)
	default:
		return fmt.Errorf("%s: %w", m.Kind, errFrame)
	}
	if err != nil {
		return write(s.out, message{Kind: kindFailed, Text: err.Error()})
	}
	return write(s.out, message{Kind: kindDone})
}

func (s *server) call(ctx context.Context, m message) error {
	var broken error
	c := runtime.Call{Export: m.Call.Export, Input: m.body, NowMs: m.Call.NowMs, Random: m.Call.Random}
	c.Host = func(_ context.Context, function string, argument []byte) []byte {
		if broken = write(s.out, message{Kind: kindAsk, Text: function, body: argument}); broken != nil {
			return nil
		}
		answer := <-s.messages
		return answer.body
	}
	r, err := s.instance.Call(ctx, c)
	if broken != nil {
		return broken
	}
	said := &result{Fuel: r.Fuel, Logs: r.Logs, CPUMs: cpuUsed().Milliseconds()}
	if err != nil {
		f := &dsh.Fault{Kind: dsh.FaultUnavailable, Message: err.Error()}
		errors.As(err, &f)
		said.Fault, said.Message, r.Output = f.Kind, f.Message, nil
	}
	return write(s.out, message{Kind: kindResult, Result: said, body: r.Output})
}
