package peers_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/dop251/goja"
	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/guests"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
	"github.com/dsh-agent/dsh/runtime/extism"
	"github.com/dsh-agent/dsh/runtime/native"
	"github.com/dsh-agent/dsh/runtime/runtimetest"
)

// roleVariable makes this binary a peer's process: it serves a plugin, or
// decides once.
const roleVariable = "DSH_PEER_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "plugin":
		plugin.Serve(&plugin.ServeConfig{HandshakeConfig: handshake(), Plugins: plugins(), GRPCServer: plugin.DefaultGRPCServer,
			Logger: hclog.NewNullLogger()})
	case "process":
		in, err := io.ReadAll(os.Stdin)
		if err != nil {
			os.Exit(1)
		}
		_, _ = os.Stdout.Write(decide(in))
	default:
		os.Exit(m.Run())
	}
}

// decide is the policy of the peers, in Go: that of the suite's C guest.
func decide(input []byte) []byte {
	var in struct {
		Attempt int `json:"attempt"`
		Failure struct {
			Status int `json:"status"`
		} `json:"failure"`
	}
	if err := json.Unmarshal(input, &in); err != nil {
		return nil
	}
	if s := in.Failure.Status; s == 429 || s >= 500 {
		return fmt.Appendf(nil, `{"kind":"retry","delayMs":%v,"maxRetries":8}`, 100*math.Pow(2, float64(in.Attempt-1)))
	}
	return fmt.Appendf(nil, `{"kind":"delegate","reason":"status %d"}`, in.Failure.Status)
}

// script is the same in JavaScript.
const script = `function decide(input) {
	const r = JSON.parse(input), s = r.failure.status || 0;
	return JSON.stringify(s === 429 || s >= 500
		? {kind: "retry", delayMs: 100 * Math.pow(2, r.attempt - 1), maxRetries: 8}
		: {kind: "delegate", reason: "status " + s});
}`

func handshake() plugin.HandshakeConfig {
	return plugin.HandshakeConfig{ProtocolVersion: 1, MagicCookieKey: "DSH_PEER", MagicCookieValue: "policy"}
}

func plugins() map[string]plugin.Plugin { return map[string]plugin.Plugin{"policy": &policyPlugin{}} }

// policyPlugin is a gRPC service of one method, of bytes to bytes.
type policyPlugin struct{ plugin.NetRPCUnsupportedPlugin }

const method = "/dsh.Policy/Decide"

func (*policyPlugin) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	s.RegisterService(&grpc.ServiceDesc{ServiceName: "dsh.Policy", HandlerType: (*any)(nil), Methods: []grpc.MethodDesc{{
		MethodName: "Decide",
		Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			in := new(wrapperspb.BytesValue)
			if err := decode(in); err != nil {
				return nil, err
			}
			return wrapperspb.Bytes(decide(in.Value)), nil
		},
	}}}, struct{}{})
	return nil
}

func (*policyPlugin) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, c *grpc.ClientConn) (any, error) {
	return c, nil
}

func input(tb testing.TB) []byte {
	tb.Helper()
	in := runtimetest.Input("retry")
	in.Failure.Status = 503
	raw, err := dsh.JSON(in)
	if err != nil {
		tb.Fatal(err)
	}
	return raw
}

// A table collects medians, and shows each beside the first of its group.
type table struct{ first map[string]time.Duration }

// measure runs f until the time of a benchmark is over, and reports the median
// and its ratio to what was measured first in the group.
func (t *table) measure(b *testing.B, group string, f func()) {
	b.Helper()
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		f()
		took = append(took, time.Since(begin))
	}
	slices.Sort(took)
	median := took[len(took)/2]
	if _, ok := t.first[group]; !ok {
		t.first[group] = median
	}
	b.ReportMetric(float64(median)/1e3, "µs-median")
	b.ReportMetric(float64(median)/float64(t.first[group]), "times-native")
}

// BenchmarkDecision is one decision, in a fresh sandbox and in one that has
// decided before, per toolchain: on the native engine, on Extism's, and on
// wazero with nothing around it. The peers follow.
func BenchmarkDecision(b *testing.B) {
	rust, _ := guests.Builtin("retry")
	modules := []struct {
		name string
		wasm []byte
	}{{"rust", rust}, {"c", runtimetest.Toolchain(b, "c")}, {"assemblyscript", runtimetest.Toolchain(b, "assemblyscript")}, {"go", runtimetest.GoPolicy(b)}}
	t := &table{map[string]time.Duration{}}
	for _, m := range modules {
		for _, e := range []runtime.Engine{native.New(native.Options{}), extism.New(extism.Options{})} {
			guest(b, t, m.name, m.wasm, e)
		}
		raw(b, t, m.name, m.wasm)
	}
	javascript(b, t)
	grpcPlugin(b, t)
	process(b, t)
}

// guest measures an engine.
func guest(b *testing.B, t *table, toolchain string, wasm []byte, e runtime.Engine) {
	m, err := runtime.Prepare(wasm, runtime.Grants{})
	if err != nil {
		b.Fatal(err)
	}
	p, err := e.Compile(b.Context(), m)
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	call := runtime.Call{Export: hostabi.ExportRecover, Input: input(b), NowMs: 1767225600000}
	decide := func(b *testing.B, i runtime.Instance) {
		if r, err := i.Call(b.Context(), call); err != nil || len(r.Output) == 0 {
			b.Fatal(err)
		}
	}
	b.Run(toolchain+"/fresh/"+e.Name(), func(b *testing.B) {
		t.measure(b, toolchain+"/fresh", func() {
			i := instance(b, p)
			decide(b, i)
			if err := i.Close(); err != nil {
				b.Fatal(err)
			}
		})
	})
	b.Run(toolchain+"/warm/"+e.Name(), func(b *testing.B) {
		// A guest without a collector is out of memory at last, so that an
		// instance is used a thousand times.
		const uses = 1000
		i, n := instance(b, p), 0
		t.measure(b, toolchain+"/warm", func() {
			if n++; n%uses == 0 {
				_ = i.Close()
				i = instance(b, p)
			}
			decide(b, i)
		})
		_ = i.Close()
	})
}

func instance(b *testing.B, p runtime.Program) runtime.Instance {
	i, err := p.Instance(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return i
}

// javascript measures an interpreter in the process.
func javascript(b *testing.B, t *table) {
	program := goja.MustCompile("policy.js", script, true)
	in := string(input(b))
	fresh := func(b *testing.B) func(goja.FunctionCall) goja.Value {
		vm := goja.New()
		if _, err := vm.RunProgram(program); err != nil {
			b.Fatal(err)
		}
		f, ok := goja.AssertFunction(vm.Get("decide"))
		if !ok {
			b.Fatal("no function")
		}
		return func(goja.FunctionCall) goja.Value {
			v, err := f(goja.Undefined(), vm.ToValue(in))
			if err != nil {
				b.Fatal(err)
			}
			return v
		}
	}
	b.Run("javascript/fresh/goja", func(b *testing.B) {
		t.measure(b, "rust/fresh", func() { fresh(b)(goja.FunctionCall{}) })
	})
	b.Run("javascript/warm/goja", func(b *testing.B) {
		decide := fresh(b)
		t.measure(b, "rust/warm", func() { decide(goja.FunctionCall{}) })
	})
}

// grpcPlugin measures a process that stays, and is asked over gRPC.
func grpcPlugin(b *testing.B, t *table) {
	start := func(b *testing.B) (*plugin.Client, *grpc.ClientConn) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), roleVariable+"=plugin")
		client := plugin.NewClient(&plugin.ClientConfig{HandshakeConfig: handshake(), Plugins: plugins(), Cmd: cmd,
			AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC}, Logger: hclog.NewNullLogger()})
		protocol, err := client.Client()
		if err != nil {
			b.Fatal(err)
		}
		got, err := protocol.Dispense("policy")
		if err != nil {
			b.Fatal(err)
		}
		return client, got.(*grpc.ClientConn)
	}
	ask := func(b *testing.B, c *grpc.ClientConn) {
		out := new(wrapperspb.BytesValue)
		if err := c.Invoke(b.Context(), method, wrapperspb.Bytes(input(b)), out); err != nil || len(out.Value) == 0 {
			b.Fatal(err)
		}
	}
	b.Run("process/warm/go-plugin", func(b *testing.B) {
		client, conn := start(b)
		defer client.Kill()
		t.measure(b, "rust/warm", func() { ask(b, conn) })
	})
	b.Run("process/fresh/go-plugin", func(b *testing.B) {
		t.measure(b, "rust/fresh", func() {
			client, conn := start(b)
			ask(b, conn)
			client.Kill()
		})
	})
}

// process measures a process a decision, over its standard input and output.
func process(b *testing.B, t *table) {
	in := input(b)
	b.Run("process/fresh/exec", func(b *testing.B) {
		t.measure(b, "rust/fresh", func() {
			cmd := exec.CommandContext(b.Context(), os.Args[0])
			cmd.Env = []string{roleVariable + "=process"}
			stdin, err := cmd.StdinPipe()
			if err != nil {
				b.Fatal(err)
			}
			go func() {
				_, _ = stdin.Write(in)
				_ = stdin.Close()
			}()
			if out, err := cmd.Output(); err != nil || len(out) == 0 {
				b.Fatal(err)
			}
		})
	})
}
