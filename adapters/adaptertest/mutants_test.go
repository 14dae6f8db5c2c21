package adaptertest_test

import (
	"context"
	"errors"
	"iter"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/adapters/adaptertest"
	"github.com/dsh-agent/dsh/adapters/openaichat"
)

// A mutant is an adapter with one fault. Each is judged in a process of its
// own, and the part of the suite that is named has to find it.
func mutants() map[string]struct {
	part string
	send func(a dsh.Adapter, key string, ctx context.Context, body []byte) iter.Seq2[dsh.Chunk, error]
} {
	type send = func(a dsh.Adapter, key string, ctx context.Context, body []byte) iter.Seq2[dsh.Chunk, error]
	each := func(change func(yield func(dsh.Chunk, error) bool, c dsh.Chunk, err error) bool) send {
		return func(a dsh.Adapter, _ string, ctx context.Context, body []byte) iter.Seq2[dsh.Chunk, error] {
			return func(yield func(dsh.Chunk, error) bool) {
				for c, err := range a.Send(ctx, body) {
					if !change(yield, c, err) {
						return
					}
				}
			}
		}
	}
	return map[string]struct {
		part string
		send send
	}{
		"retries": {"once", func(a dsh.Adapter, _ string, ctx context.Context, body []byte) iter.Seq2[dsh.Chunk, error] {
			return func(yield func(dsh.Chunk, error) bool) {
				for c, err := range a.Send(ctx, body) {
					if errors.Is(err, dsh.CodeServer) {
						a.Send(ctx, body)(yield)
						return
					}
					if !yield(c, err) {
						return
					}
				}
			}
		}},
		"another body": {"answers", func(a dsh.Adapter, _ string, ctx context.Context, body []byte) iter.Seq2[dsh.Chunk, error] {
			return a.Send(ctx, append(body, ' '))
		}},
		"a cut stream is whole": {"deliveries", each(func(yield func(dsh.Chunk, error) bool, c dsh.Chunk, err error) bool {
			if errors.Is(err, dsh.CodeTransport) {
				return yield(dsh.Chunk{Type: dsh.ChunkFinish, Finish: &dsh.Finish{Kind: dsh.FinishStop}}, nil)
			}
			return yield(c, err)
		})},
		"two ends": {"answers", each(func(yield func(dsh.Chunk, error) bool, c dsh.Chunk, err error) bool {
			return yield(c, err) && (c.Finish == nil || yield(c, err))
		})},
		"a foreign error": {"failures", each(func(yield func(dsh.Chunk, error) bool, c dsh.Chunk, err error) bool {
			if err != nil {
				err = errors.New(err.Error())
			}
			return yield(c, err)
		})},
		"every failure is the server's": {"failures", each(func(yield func(dsh.Chunk, error) bool, c dsh.Chunk, err error) bool {
			if err != nil {
				f := *dsh.AsFailure(err)
				f.Code = dsh.CodeServer
				err = &f
			}
			return yield(c, err)
		})},
		"a key that shows": {"secrets", func(a dsh.Adapter, key string, ctx context.Context, body []byte) iter.Seq2[dsh.Chunk, error] {
			return each(func(yield func(dsh.Chunk, error) bool, c dsh.Chunk, err error) bool {
				if err != nil {
					f := *dsh.AsFailure(err)
					f.Message += key
					err = &f
				}
				return yield(c, err)
			})(a, key, ctx, body)
		}},
		"a stop that is taken for a stall": {"stop", each(func(yield func(dsh.Chunk, error) bool, c dsh.Chunk, err error) bool {
			if errors.Is(err, dsh.CodeAborted) {
				f := *dsh.AsFailure(err)
				f.Code = dsh.CodeTimeout
				err = &f
			}
			return yield(c, err)
		})},
	}
}

type mutant struct {
	dsh.Adapter
	send func(ctx context.Context, body []byte) iter.Seq2[dsh.Chunk, error]
}

func (m mutant) Send(ctx context.Context, body []byte) iter.Seq2[dsh.Chunk, error] {
	return m.send(ctx, body)
}

// TestMutant runs the suite on the mutant that the environment names, and on
// the adapter as it is where it names none of them.
func TestMutant(t *testing.T) {
	name, ok := os.LookupEnv("DSH_TEST_MUTANT")
	if !ok {
		t.Skip("it is run by TestMutantsAreFound")
	}
	adaptertest.Run(t, adaptertest.Suite{
		Wire: func() adaptertest.Wire { return &protocol{} },
		New: func(t testing.TB, to adaptertest.Target) dsh.Adapter {
			t.Helper()
			a, err := openaichat.New(openaichat.Settings{
				BaseURL: to.BaseURL, Key: to.Key, Header: to.Header, TLS: to.TLS, Dial: to.Dial,
				StreamIdle: to.StreamIdle, Keepalive: to.Keepalive, Window: to.Window,
			})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(a.Close)
			m, ok := mutants()[name]
			if !ok {
				return a
			}
			return mutant{a, func(ctx context.Context, body []byte) iter.Seq2[dsh.Chunk, error] {
				return m.send(a, to.Key, ctx, body)
			}}
		},
	})
}

func TestMutantsAreFound(t *testing.T) {
	for name, m := range mutants() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if out, err := judge(t, name, m.part); err == nil {
				t.Errorf("the suite finds no fault:\n%s", out)
			} else if !strings.Contains(out, "--- FAIL: TestMutant/"+m.part) {
				t.Errorf("the suite ended in %v:\n%s", err, out)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		if out, err := judge(t, "", "(once|answers|secrets)"); err != nil {
			t.Errorf("the suite finds a fault in the adapter as it is: %v\n%s", err, out)
		}
	})
}

// judge runs a part of the suite in a process of its own.
func judge(t *testing.T, name, part string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMutant$/^"+part+"$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), "DSH_TEST_MUTANT="+name)
	out, err := cmd.CombinedOutput()
	return string(out), err
}
