package meter_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/dsh-agent/dsh/runtime/internal/meter"
	"github.com/dsh-agent/dsh/runtime/internal/wasm"
)

// randomModules is how many random modules are tried; DSH_METER_RANDOM gives
// another number.
const randomModules = 60

// TestRandom makes random valid modules with binaryen's wasm-opt and compares
// them with themselves, rewritten: the same results, traps, calls of the host
// and memory; with exactly the fuel that a run needs it is the same again, and
// with one unit less it is stopped.
func TestRandom(t *testing.T) {
	opt, err := exec.LookPath("wasm-opt")
	if err != nil {
		t.Skip("wasm-opt, of Debian's binaryen, is not installed")
	}
	n := randomModules
	if s := os.Getenv("DSH_METER_RANDOM"); s != "" {
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatalf("DSH_METER_RANDOM: %v", err)
		}
	}
	if testing.Short() {
		n = min(n, 20)
	}
	seed, _ := strconv.ParseUint(os.Getenv("DSH_METER_SEED"), 10, 64)
	const shards = 2
	for shard := range shards {
		t.Run(strconv.Itoa(shard), func(t *testing.T) {
			t.Parallel()
			dir, total := t.TempDir(), tally{}
			for i := shard; i < n && !t.Failed(); i += shards {
				b := randomModule(t, opt, dir, seed+uint64(i))
				if b == nil {
					break
				}
				compare(t, fmt.Sprintf("seed %d", seed+uint64(i)), b, &total)
			}
			t.Logf("of %d modules: %+v", n/shards, total)
			if n >= 100 && !t.Failed() && (total.modules < n/shards/2 || total.exact < n/shards) {
				t.Errorf("too few of %d modules were compared: %+v", n/shards, total)
			}
		})
	}
}

// tally counts what was compared.
type tally struct {
	modules, refused, calls, traps, exact, hostCalls int
	fuel                                             int64
}

func randomModule(t *testing.T, opt, dir string, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 42))
	input := make([]byte, 1000+rng.IntN(20_000))
	for i := 0; i+8 <= len(input); i += 8 {
		binary.LittleEndian.PutUint64(input[i:], rng.Uint64())
	}
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out.wasm")
	if err := os.WriteFile(in, input, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"-ttf", in, "-o", out, "--mvp-features", "--enable-bulk-memory", "--enable-sign-ext",
		"--enable-mutable-globals", "--enable-nontrapping-float-to-int"}
	// Both together make references that are not nullable.
	switch seed % 4 {
	case 0:
		args = append(args, "--enable-multivalue")
	case 1:
		args = append(args, "--enable-reference-types")
	}
	if seed%5 == 0 {
		args = append(args, "-O2")
	}
	if msg, err := exec.Command(opt, args...).CombinedOutput(); err != nil {
		t.Errorf("seed %d: wasm-opt: %v: %s", seed, err, msg)
		return nil
	}
	b, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// trace is what a run of a module shows.
type trace struct {
	steps []string // one a call: its results or its trap
	used  []int64
	calls []string // of the host
	mem   uint64   // a hash of its memory
	cause meter.Cause
}

// run instantiates a module and calls its exports in order, with arguments
// that only depend on the export. budgets are the fuel of each call; nil:
// plenty. It stops where fuel or stack is out.
func run(t *testing.T, b []byte, budgets []int64) (tr trace, err error) {
	ctx := context.Background()
	r := wazero.NewRuntimeWithConfig(ctx, engines()["compiler"])
	defer r.Close(ctx)
	host := r.NewHostModuleBuilder("fuzzing-support")
	for name, typ := range map[string]api.ValueType{"log-i32": api.ValueTypeI32, "log-i64": api.ValueTypeI64, "log-f32": api.ValueTypeF32, "log-f64": api.ValueTypeF64} {
		host.NewFunctionBuilder().WithGoFunction(api.GoFunc(func(_ context.Context, stack []uint64) {
			v := stack[0]
			if typ == api.ValueTypeI32 || typ == api.ValueTypeF32 {
				v = uint64(uint32(v)) // what is above them is undefined
			}
			tr.calls = append(tr.calls, fmt.Sprintf("%s %x", name, v))
		}), []api.ValueType{typ}, nil).Export(name)
	}
	if _, err := host.Instantiate(ctx); err != nil {
		t.Fatal(err)
	}
	c, err := r.CompileModule(ctx, b)
	if err != nil {
		return tr, err
	}
	m, err := r.InstantiateModule(ctx, c, wazero.NewModuleConfig().WithStartFunctions())
	if err != nil {
		return tr, err
	}
	names := []string{}
	for name := range c.ExportedFunctions() {
		names = append(names, name)
	}
	slices.Sort(names)
	k := tank(m)
	for i, name := range names {
		fuel := int64(plenty)
		if budgets != nil {
			fuel = budgets[i]
		}
		if k.Fuel != nil {
			k.Fill(fuel, 64*meter.StackBytes)
			split(k)
		}
		tr.step(ctx, m, name)
		if k.Fuel == nil {
			continue
		}
		tr.used = append(tr.used, k.Used(fuel))
		if tr.cause = k.Cause(); tr.cause != meter.CauseNone {
			break
		}
	}
	if mem := m.Memory(); mem != nil {
		contents, _ := mem.Read(0, mem.Size())
		h := fnv.New64a()
		h.Write(contents)
		tr.mem = h.Sum64()
	}
	return tr, nil
}

func (tr *trace) step(ctx context.Context, m api.Module, name string) {
	f := m.ExportedFunction(name)
	args := make([]uint64, len(f.Definition().ParamTypes()))
	for i, typ := range f.Definition().ParamTypes() {
		switch typ {
		case api.ValueTypeExternref, 0x70:
			args[i] = 0
		case api.ValueTypeI32, api.ValueTypeF32:
			args[i] = uint64(uint32(len(name)*0x01234567 + i))
		default:
			args[i] = uint64(len(name)*0x0123456789abcdef + i)
		}
	}
	results, err := f.Call(ctx, args...)
	if err != nil {
		line, _, _ := strings.Cut(err.Error(), "\n")
		tr.steps = append(tr.steps, name+": "+line)
		return
	}
	// References are addresses, which no two runs share.
	for i, typ := range f.Definition().ResultTypes() {
		if typ == api.ValueTypeExternref || typ == 0x70 {
			results[i] = min(results[i], 1)
		}
	}
	tr.steps = append(tr.steps, fmt.Sprintf("%s: %x", name, results))
}

func compare(t *testing.T, what string, b []byte, total *tally) {
	m, err := wasm.Decode(b)
	if err != nil {
		// binaryen 108 writes some references as an early draft had them.
		if _, plainErr := run(t, b, nil); plainErr == nil {
			t.Errorf("%s: %v", what, err)
		}
		total.refused++
		return
	}
	out, err := meter.Rewrite(m, meter.Options{Fuel: plenty, Stack: meter.StackBytes, Slice: slice})
	if err != nil {
		t.Fatal(err)
	}
	again, err := meter.Rewrite(m, meter.Options{Fuel: plenty, Stack: meter.StackBytes, Slice: slice})
	if err != nil || !bytes.Equal(out, again) {
		t.Errorf("%s: rewritten twice, it differs: %v", what, err)
	}
	plain, plainErr := run(t, b, nil)
	got, gotErr := run(t, out, nil)
	if plainErr != nil || gotErr != nil {
		if (plainErr == nil) != (gotErr == nil) {
			t.Errorf("%s: plain: %v; rewritten: %v", what, plainErr, gotErr)
		}
		return
	}
	if got.cause == meter.CauseStack {
		return // the plain one goes on to wazero's own limit
	}
	if !slices.Equal(plain.steps, got.steps) || !slices.Equal(plain.calls, got.calls) || plain.mem != got.mem || got.cause != meter.CauseNone {
		t.Errorf("%s: they differ (%s):\nplain:     %v %v %x\nrewritten: %v %v %x", what, got.cause, plain.steps, plain.calls, plain.mem, got.steps, got.calls, got.mem)
		return
	}
	total.modules++
	total.calls += len(got.steps)
	total.hostCalls += len(got.calls)
	exact(t, what, out, got, total)
}

// exact runs with exactly the fuel that is needed, and with one unit less for
// one of the calls.
func exact(t *testing.T, what string, b []byte, want trace, total *tally) {
	got, err := run(t, b, want.used)
	if err != nil || !slices.Equal(want.steps, got.steps) || !slices.Equal(want.used, got.used) || want.mem != got.mem {
		t.Errorf("%s: with exactly its fuel, it differs: %v %s\nwith plenty: %v %v\nexactly:     %v %v",
			what, err, got.cause, want.steps, want.used, got.steps, got.used)
		return
	}
	for i, used := range want.used {
		total.fuel += used
		if strings.Contains(want.steps[i], "wasm error") {
			total.traps++
		}
		if used == 0 || i%3 != 0 {
			continue
		}
		less := slices.Clone(want.used)
		less[i]--
		got, err := run(t, b, less)
		if err != nil || got.cause != meter.CauseFuel || len(got.used) != i+1 || got.used[i] != less[i] {
			t.Errorf("%s: with one unit less for call %d of %d, it is not stopped: %v %q %v", what, i, len(want.used), err, got.cause, got.used)
			return
		}
		if len(got.calls) > len(want.calls) || !slices.Equal(got.calls, want.calls[:len(got.calls)]) {
			t.Errorf("%s: with one unit less, it calls the host differently", what)
		}
		total.exact++
	}
}
