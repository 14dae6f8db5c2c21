// Command embed runs one turn with dsh's packages and without its command: its
// own tool, its own policy file, a log in a folder, and a provider that fails
// twice before it answers.
//
//	go run ./examples/embed                # recovers by patient.wasm
//	go run ./examples/embed -policy ''     # no policy: the first failure is final
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/openaichat"
	"github.com/dsh-agent/dsh/adapters/scripted"
	"github.com/dsh-agent/dsh/loop"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/native"
	"github.com/dsh-agent/dsh/store/badger"
)

// clock is a tool of our own.
type clock struct{}

func (clock) Spec() dsh.ToolSpec {
	return dsh.ToolSpec{Name: "clock", Description: "Tells the time.", Schema: json.RawMessage(`{"type":"object"}`)}
}

func (clock) Run(context.Context, json.RawMessage) (dsh.ToolResult, error) {
	return dsh.ToolResult{Content: []dsh.Block{dsh.TextBlock(time.Now().Format(time.Kitchen))}}, nil
}

func main() {
	policy := flag.String("policy", "examples/embed/patient.wasm", "a policy `file`; none: every failure is final")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *policy); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer, policy string) error {
	// In real use this is a provider's address; here it is one that plays a script.
	provider, err := scripted.Serve(
		scripted.Step{Do: "status", Status: 500},
		scripted.Step{Do: "tool", Name: "clock", Arguments: "{}"},
		scripted.Step{Do: "drop", Text: "It is about", AfterChunks: 1},
		scripted.Step{Do: "text", Text: "It is late."},
	)
	if err != nil {
		return err
	}
	defer provider.Close()
	adapter, err := openaichat.New(openaichat.Settings{BaseURL: provider.URL})
	if err != nil {
		return err
	}

	var specs []runtime.Spec
	if policy != "" {
		specs = append(specs, runtime.Spec{Name: "patient", Module: policy})
	}
	policies, err := runtime.Open(ctx, specs, runtime.Options{Engine: native.New(native.Options{})})
	if err != nil {
		return err
	}
	defer policies.Close()

	dir, err := os.MkdirTemp("", "embed")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	sessions, err := badger.Open(dir, badger.Options{})
	if err != nil {
		return err
	}
	defer sessions.Close()

	session, err := loop.Create(ctx, sessions, dsh.SessionStart{ID: "first", Cwd: "."}, loop.Config{
		Provider: "mine", Model: "any", Tools: []dsh.Tool{clock{}}, Policies: policies,
		Limits: loop.Limits{MaxAttemptsPerStep: 10},
		Providers: func(string) (loop.Provider, error) {
			return loop.Provider{Adapter: adapter, Retry: dsh.DefaultRetryPolicy()}, nil
		},
		Front: loop.Front{Event: func(e dsh.Event) error {
			_, err := fmt.Fprintf(out, "%3d %s\n", e.Seq, e.Type)
			return err
		}},
	})
	if err != nil {
		return err
	}
	outcome, err := session.Prompt(ctx, []dsh.Block{dsh.TextBlock("What time is it?")})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s after %d attempts and %d retries: %q\n", outcome.Status, outcome.Attempts, outcome.Retries, outcome.Text)
	if outcome.Failure != nil {
		fmt.Fprintln(out, outcome.Failure)
	}
	return session.Close(ctx)
}
