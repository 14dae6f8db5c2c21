package runtimetest

import (
	"context"
	"encoding/json"
	"errors"
	goruntime "runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/hostabi"
	"github.com/dsh-agent/dsh/runtime"
)

// Run holds an engine to the suite. Each call of newEngine gives a fresh one.
func Run(t *testing.T, newEngine func(testing.TB) runtime.Engine) {
	s := &suite{newEngine}
	t.Run("decisions", s.decisions)
	t.Run("toolchains", s.toolchains)
	t.Run("faults", s.faults)
	t.Run("refused at load", s.refused)
	t.Run("fresh instances", s.fresh)
	t.Run("clock and random numbers", s.world)
	t.Run("logs", s.logs)
	t.Run("host functions", s.hostFunctions)
	t.Run("config", s.config)
	t.Run("exact input", s.exact)
	t.Run("before_step", s.beforeStep)
	t.Run("memory limit", s.memory)
	t.Run("cancelled", s.cancelled)
	t.Run("garbage collector", s.collector)
	t.Run("kills", s.kills)
	t.Run("at once", s.parallel)
}

type suite struct {
	newEngine func(testing.TB) runtime.Engine
}

// calm is a deadline that no well-behaved guest meets, and short one that a
// guest that never ends is cut off at.
const (
	calm  = 30 * time.Second
	short = 150 * time.Millisecond
	// late is when a decision is over at the latest, on a busy machine.
	late = 10 * time.Second
)

// Input is a first failure of code SERVER, as a loop puts it to a policy.
func Input(policy string) dsh.RecoverInput {
	return dsh.RecoverInput{
		ABI: hostabi.ABI, DecisionID: "d-1", Policy: policy, Session: "s-1", Turn: 1, Step: 1, Attempt: 1,
		Purpose: dsh.PurposeReply, Provider: "p", Model: "m", Failure: dsh.Failure{Code: dsh.CodeServer, Message: "no"},
		FailedAtMs: 1767225599000, NowMs: 1767225600000, Random: [4]float64{0.5, 0.25, 0.75, 0.125},
		RetryPolicy: dsh.DefaultRetryPolicy(), RetryCounts: []dsh.RetryCount{}, Repairs: []dsh.RepairOutcome{},
		Config: json.RawMessage("{}"),
	}
}

func (s *suite) open(t *testing.T, spec runtime.Spec, opts runtime.Options) (dsh.Policy, error) {
	t.Helper()
	opts.Engine = s.newEngine(t)
	opts.Warn = func(text string) { t.Error("warned:", text) }
	if opts.Deadline == 0 {
		opts.Deadline = calm
	}
	if spec.Wasm == nil {
		spec.Wasm = Guest(t, spec.Name)
	}
	spec.Module = spec.Name + ".wasm"
	set, err := runtime.Open(t.Context(), []runtime.Spec{spec}, opts)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		if err := set.Close(); err != nil {
			t.Error(err)
		}
	})
	policies, _ := set.Policies()
	return policies[0], nil
}

func (s *suite) policy(t *testing.T, name string, opts runtime.Options) dsh.Policy {
	t.Helper()
	p, err := s.open(t, runtime.Spec{Name: name}, opts)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func decide(t *testing.T, p dsh.Policy, in any) (dsh.Verdict, error) {
	t.Helper()
	raw, err := dsh.JSON(in)
	if err != nil {
		t.Fatal(err)
	}
	return p.Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: raw})
}

func (s *suite) decisions(t *testing.T) {
	for guest, want := range map[string]string{
		"retry":         `{"kind":"retry","delayMs":5.5,"later":[1,{"a":null}],"reason":"because"}`,
		"retry-at-once": `{"kind":"retry","delayMs":0}`,
		"delegate":      `{"kind":"delegate","reason":"not mine"}`,
		"fallback":      `{"kind":"delegate","fallback":{"kind":"retry","delayMs":1,"mode":"always","policyKey":"k"}}`,
		"repairs":       `{"kind":"retry","delayMs":1,"repairs":[{"kind":"prune"},{"kind":"compact","from":3,"to":9}]}`,
		"largest":       `{"kind":"delegate"}`,
		"grow-refused":  `{"kind":"delegate"}`,
		"nothing-there": `{"kind":"delegate"}`,
		"stdin":         `{"kind":"delegate"}`,
		"writes":        `{"kind":"delegate"}`,
		"sleep":         `{"kind":"retry","delayMs":3600000}`,
	} {
		t.Run(guest, func(t *testing.T) {
			p := s.policy(t, guest, runtime.Options{})
			for range 4 { // fresh, and from the pool
				v, err := decide(t, p, Input(guest))
				if err != nil || string(v.Raw) != want {
					t.Fatalf("%s, %v; want %s", v.Raw, err, want)
				}
				if want, err := dsh.ParseDecision(v.Raw); err != nil || want.Kind != v.Decision.Kind || want.DelayMs != v.Decision.DelayMs {
					t.Fatalf("%s was read as %+v", v.Raw, v.Decision)
				}
			}
		})
	}
}

// toolchains: what compilers write decides what its source says, and uses the
// same fuel each time.
func (s *suite) toolchains(t *testing.T) {
	guests := map[string][]byte{"c": Toolchain(t, "c"), "assemblyscript": Toolchain(t, "assemblyscript")}
	if !testing.Short() {
		guests["go"] = GoPolicy(t) // takes seconds to compile
	}
	for name, wasm := range guests {
		p, err := s.open(t, runtime.Spec{Name: name, Wasm: wasm}, runtime.Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := map[int]string{503: `{"kind":"retry","delayMs":400,"maxRetries":8}`, 401: `{"kind":"delegate","reason":"status 401"}`}
		fuel := map[int]uint64{}
		for range 3 {
			for _, status := range []int{503, 401} {
				in := Input(name)
				in.Attempt, in.Failure.Status = 3, status
				if status == 401 {
					in.Failure.Code = dsh.CodeAuth
				}
				v, err := decide(t, p, in)
				switch retries := v.Decision.Kind == dsh.KindRetry; {
				case err != nil:
					t.Fatalf("%s: %v", name, err)
				case name != "go" && string(v.Raw) != want[status], name == "go" && retries != (status == 503):
					t.Errorf("%s: %s for status %d", name, v.Raw, status)
				case v.Fuel == 0 || fuel[status] != 0 && v.Fuel != fuel[status]:
					t.Errorf("%s: %d units of fuel, and before %d", name, v.Fuel, fuel[status])
				}
				fuel[status] = v.Fuel
			}
		}
		t.Logf("%s: %d units of fuel for a retry, %d for a delegate", name, fuel[503], fuel[401])
	}
}

func (s *suite) faults(t *testing.T) {
	type kinds = []dsh.FaultKind
	endless := kinds{dsh.FaultFuel, dsh.FaultDeadline}
	schema, output, trap, exit := kinds{dsh.FaultSchema}, kinds{dsh.FaultOutput}, kinds{dsh.FaultTrap}, kinds{dsh.FaultExit}
	for guest, want := range map[string]kinds{
		"garbage": schema, "two-values": schema, "array": schema, "string": schema, "null": schema, "nested": schema,
		"unknown-kind": schema, "no-kind": schema, "no-delay": schema, "proceed": schema, "fallback-delegate": schema,
		"delay-nan": schema, "delay-infinite": schema, "delay-negative": schema, "delay-over": schema, "delay-text": schema,
		"mode-unknown": schema, "max-retries-negative": schema, "repair-unknown": schema,

		"empty": output, "empty-set": output, "white": output, "bad-range": output, "lying-length": output,
		"wide-range": {dsh.FaultOutput, dsh.FaultTrap}, "huge": output, "not-utf8": output,

		"trap": trap, "trap-after-output": trap, "divide": trap, "out-of-bounds": trap, "kernel-bounds": trap,
		"error": trap, "error-and-0": trap, "trap-init": trap, "last-words": trap, "logs-long": trap, "grow-table": {dsh.FaultTrap, dsh.FaultMemory},

		"returns-7": exit, "exit-0": exit, "exit-1": exit, "exit-deadline": exit, "exit-cancelled": exit, "exit-init": exit,

		"grow": {dsh.FaultMemory}, "kernel-alloc": {dsh.FaultMemory, dsh.FaultTrap}, "kernel-flood": {dsh.FaultMemory, dsh.FaultFuel},

		"recursion": {dsh.FaultStack}, "recursion-fat": {dsh.FaultStack},

		"spin": endless, "spin-kernel": endless, "spin-fill": endless, "spin-init": endless,
		"recursion-indirect": endless, "recursion-exponential": endless, "chain": endless,
		"sleep-for-ever": endless, "stderr-flood": endless,
	} {
		t.Run(guest, func(t *testing.T) {
			opts := runtime.Options{Deadline: calm}
			if slices.Contains(want, dsh.FaultDeadline) {
				opts.Deadline = short
			}
			p := s.policy(t, guest, opts)
			for range 2 {
				start := time.Now()
				v, err := decide(t, p, Input(guest))
				var f *dsh.Fault
				if !errors.As(err, &f) || !slices.Contains(want, f.Kind) {
					t.Fatalf("%s, %v; want a fault of kind %v", v.Raw, err, want)
				}
				if _, bare := err.(*dsh.Fault); !bare {
					t.Errorf("the error is a %T around a fault", err)
				}
				if f.Message == "" || strings.ContainsAny(f.Message, "\n\x1b\x00") || len(f.Message) > 1024 {
					t.Errorf("the message is %q", f.Message)
				}
				if took := time.Since(start); took > late {
					t.Errorf("it took %v", took)
				}
				goruntime.GC() // which waits for every guest that still runs
			}
		})
	}
	t.Run("last words are told", func(t *testing.T) {
		if _, err := decide(t, s.policy(t, "last-words", runtime.Options{}), Input("p")); err == nil || !strings.Contains(err.Error(), "panic: it is broken") {
			t.Error(err)
		}
		if _, err := decide(t, s.policy(t, "error", runtime.Options{}), Input("p")); err == nil || !strings.Contains(err.Error(), "red") {
			t.Error(err)
		}
	})
}

func (s *suite) refused(t *testing.T) {
	other, err := hostabi.Pack(Guest(t, "delegate"), hostabi.Manifest{ABI: "dsh:policy/v2"})
	if err != nil {
		t.Fatal(err)
	}
	asking, err := hostabi.Pack(Guest(t, "host-import"), hostabi.Manifest{Capabilities: []string{hostabi.CapLogRead}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		wasm []byte // nil: the guest of this name
		want string
	}{
		{"other-abi", other, `"dsh:policy/v2"`},
		{"start", nil, "start function"},
		{"start-spin", nil, "start function"},
		{"no-recover", nil, `lacks the export "recover"`},
		{"wrong-signature", nil, "() -> i64, and has to have the type () -> i32"},
		{"forbidden-import", nil, "env.system"},
		{"http", nil, "no network"},
		{"vars", nil, "no Extism variables"},
		{"host-import", nil, "does not ask for the capability log.read"},
		{"not-granted", asking, "log.read is not granted"},
		{"big-memory", nil, "64000 KiB of memory, and 16384 KiB are allowed"},
		{"invalid", nil, "an operand is missing"},
		{"types-do-not-fit", nil, "cannot be compiled"},
		{"trap-warm", nil, "in warm: "},
		{"spin-warm", nil, "in warm: "},
		{"text", []byte("(module)"), "not a WebAssembly module"},
		{"cut", Guest(t, "retry")[:100], "damaged"},
	} {
		start := time.Now()
		_, err := s.open(t, runtime.Spec{Name: c.name, Wasm: c.wasm}, runtime.Options{Deadline: late / 4})
		var load *runtime.LoadError
		if !errors.As(err, &load) || len(load.Problems) != 1 {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		p := load.Problems[0]
		if !strings.Contains(p.Message, c.want) || !strings.Contains(p.Message, c.name+".wasm") || strings.Contains(p.Message, "\n") || p.Policy != c.name {
			t.Errorf("%s: %s; want %q", c.name, p, c.want)
		}
		if took := time.Since(start); took > late {
			t.Errorf("%s took %v", c.name, took)
		}
	}
}

// fresh: nothing that one decision leaves behind is there for the next.
func (s *suite) fresh(t *testing.T) {
	for guest, want := range map[string]float64{"smuggle": 2, "smuggle-pages": 0} {
		p := s.policy(t, guest, runtime.Options{})
		for i := range 20 {
			v, err := decide(t, p, Input(guest))
			if err != nil || v.Decision.DelayMs != want {
				t.Fatalf("%s, decision %d: %s, %v; want a delay of %v", guest, i+1, v.Raw, err, want)
			}
		}
	}
}

// world: what a guest reads of WASI's clock and random numbers is the input's.
func (s *suite) world(t *testing.T) {
	delay := func(p dsh.Policy, change func(*dsh.RecoverInput)) float64 {
		t.Helper()
		in := Input("p")
		change(&in)
		v, err := decide(t, p, in)
		if err != nil {
			t.Fatal(err)
		}
		return v.Decision.DelayMs
	}
	clock := s.policy(t, "clock", runtime.Options{})
	for _, ms := range []int64{0, 1, 1234567} {
		got := delay(clock, func(in *dsh.RecoverInput) { in.NowMs = 1767225600000 + ms })
		if got != float64(ms) {
			t.Errorf("%d ms past the hour the clock shows %v", ms, got)
		}
	}
	for _, guest := range []string{"random", "random-warm"} {
		p := s.policy(t, guest, runtime.Options{})
		first := delay(p, func(*dsh.RecoverInput) {})
		// The first bytes of ChaCha8 under the seed of Input: the same for
		// every engine and every version.
		if first != 1421448159 {
			t.Errorf("%s: the numbers of a known seed are others: %v", guest, first)
		}
		for range 4 {
			if again := delay(p, func(in *dsh.RecoverInput) { in.NowMs++ }); again != first {
				t.Errorf("%s: the same seed gives %v and %v", guest, first, again)
			}
		}
		for i := range 4 {
			if other := delay(p, func(in *dsh.RecoverInput) { in.Random[i] = 0.99 }); other == first {
				t.Errorf("%s: random number %d does not count", guest, i)
			}
		}
	}
}

func (s *suite) logs(t *testing.T) {
	for guest, decides := range map[string]bool{"logs": true, "logs-long": false} {
		var lines []runtime.LogLine
		p := s.policy(t, guest, runtime.Options{Logged: func(policy string, line runtime.LogLine) {
			if policy != guest {
				t.Errorf("a line of %q", policy)
			}
			lines = append(lines, line)
		}})
		if _, err := decide(t, p, Input(guest)); (err == nil) != decides {
			t.Errorf("%s: %v", guest, err)
		}
		size := 0
		for _, l := range lines {
			size += len(l.Text)
			if strings.ContainsAny(l.Text, "\x1b\n") || l.Level == "" {
				t.Errorf("%s: a line %+v", guest, l)
			}
		}
		// One line more says that some are missing.
		if len(lines) < 2 || len(lines) > hostabi.MaxLogLines+1 || size > hostabi.MaxLogBytes+200 || !strings.Contains(lines[len(lines)-1].Text, "dropped") {
			t.Errorf("%s: %d lines of %d bytes", guest, len(lines), size)
		}
	}
}

func (s *suite) config(t *testing.T) {
	p, err := s.open(t, runtime.Spec{Name: "config", Config: json.RawMessage(`{"answer": {"kind": "delegate", "reason": "as it says"}, "other": "text"}`)}, runtime.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if v, err := decide(t, p, Input("config")); err != nil || v.Decision.Reason != "as it says" {
		t.Errorf("%s, %v", v.Raw, err)
	}
	for _, c := range []struct{ guest, config, want string }{
		{"config", `{}`, "answer is missing: it says what to decide"},
		{"config-trap", `{}`, "failed to check it: "},
		{"config-garbage", `{}`, "not of the contract's form"},
	} {
		_, err := s.open(t, runtime.Spec{Name: c.guest, Config: json.RawMessage(c.config)}, runtime.Options{})
		var load *runtime.LoadError
		if !errors.As(err, &load) || len(load.Problems) != 1 || load.Problems[0].Key != "config" || !strings.Contains(load.Problems[0].Message, c.want) {
			t.Errorf("%s: %v; want %q", c.guest, err, c.want)
		}
	}
}

// exact: a guest reads the bytes of the input as they are, and the host those
// of the output.
func (s *suite) exact(t *testing.T) {
	wasm := Guest(t, "echo")
	module, err := runtime.Prepare(wasm, runtime.Grants{})
	if err != nil {
		t.Fatal(err)
	}
	program, err := s.newEngine(t).Compile(t.Context(), module)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	all := make([]byte, 3000)
	for i := range all {
		all[i] = byte(i * 7)
	}
	for _, input := range [][]byte{{0}, []byte("{\"a\":\"\u2028\"} \n"), all} {
		i, err := program.Instance(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		r, err := i.Call(t.Context(), runtime.Call{Export: hostabi.ExportRecover, Input: input})
		if err != nil || string(r.Output) != string(input) {
			t.Errorf("%d bytes came back as %d: %v", len(input), len(r.Output), err)
		}
		if err := i.Close(); err != nil {
			t.Error(err)
		}
	}
}

func (s *suite) beforeStep(t *testing.T) {
	p := s.policy(t, "before-step", runtime.Options{})
	raw, err := dsh.JSON(dsh.StepInput{ABI: hostabi.ABI, Config: json.RawMessage("{}")})
	if err != nil {
		t.Fatal(err)
	}
	v, err := p.Decide(t.Context(), dsh.Question{Hook: dsh.HookBeforeStep, Input: raw})
	if err != nil || v.Decision.Kind != dsh.KindProceed || len(v.Decision.Repairs) != 1 {
		t.Errorf("%s, %v", v.Raw, err)
	}
	if !slices.Equal(p.Info().Hooks, []dsh.Hook{dsh.HookRecover, dsh.HookBeforeStep}) {
		t.Errorf("it has the hooks %v", p.Info().Hooks)
	}
	var f *dsh.Fault
	if _, err := s.policy(t, "delegate", runtime.Options{}).Decide(t.Context(), dsh.Question{Hook: dsh.HookBeforeStep, Input: raw}); !errors.As(err, &f) || f.Kind != dsh.FaultUnavailable {
		t.Errorf("a policy without before_step: %v", err)
	}
}

// memory: the limit is the policy's own, from the least to more than the
// default.
func (s *suite) memory(t *testing.T) {
	for mb, want := range map[int]string{1: "1024 KiB", 2: "2048 KiB", 32: "32768 KiB"} {
		p, err := s.open(t, runtime.Spec{Name: "grow", MemoryMB: mb}, runtime.Options{})
		if err != nil {
			t.Fatal(err)
		}
		var f *dsh.Fault
		if _, err := decide(t, p, Input("grow")); !errors.As(err, &f) || f.Kind != dsh.FaultMemory || !strings.Contains(f.Message, want) {
			t.Errorf("%d MB: %v", mb, err)
		}
		p, err = s.open(t, runtime.Spec{Name: "retry", MemoryMB: mb}, runtime.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decide(t, p, Input("retry")); err != nil {
			t.Errorf("%d MB: %v", mb, err)
		}
	}
	if p, err := s.open(t, runtime.Spec{Name: "big-memory", MemoryMB: 64}, runtime.Options{}); err != nil {
		t.Error(err)
	} else if _, err := decide(t, p, Input("p")); err != nil {
		t.Error(err)
	}
}

// cancelled: when the context ends, so does the decision.
func (s *suite) cancelled(t *testing.T) {
	for _, guest := range []string{"spin", "recursion-exponential"} {
		p := s.policy(t, guest, runtime.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), short)
		raw, err := dsh.JSON(Input(guest))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		var f *dsh.Fault
		if _, err := p.Decide(ctx, dsh.Question{Hook: dsh.HookRecover, Input: raw}); !errors.As(err, &f) || f.Kind != dsh.FaultDeadline && f.Kind != dsh.FaultFuel {
			t.Errorf("%s: %v", guest, err)
		}
		if took := time.Since(start); took > late {
			t.Errorf("%s took %v", guest, took)
		}
		cancel()
	}
}

// collector: a guest that runs on holds up neither the garbage collector nor
// the goroutines beside it, all of which would wait for it.
func (s *suite) collector(t *testing.T) {
	for _, guest := range []string{"spin", "spin-fill", "recursion-exponential", "recursion-indirect", "chain"} {
		p := s.policy(t, guest, runtime.Options{Deadline: time.Second})
		raw, err := dsh.JSON(Input(guest))
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := p.Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: raw})
			done <- err
		}()
		rounds := 0
		for running := true; running; rounds++ {
			start := time.Now()
			goruntime.GC()
			if took := time.Since(start); took > late/2 {
				t.Errorf("%s: the garbage collector took %v", guest, took)
			}
			select {
			case err = <-done:
				running = false
			default:
			}
		}
		var f *dsh.Fault
		if !errors.As(err, &f) || f.Kind != dsh.FaultDeadline && f.Kind != dsh.FaultFuel {
			t.Errorf("%s: %v", guest, err)
		}
		t.Logf("%s: %d collections beside it", guest, rounds)
	}
}

// kills: what was stopped leaves nothing behind.
func (s *suite) kills(t *testing.T) {
	rounds := 25
	if testing.Short() || strings.HasSuffix(s.newEngine(t).Name(), "/process") { // each of which ends a process
		rounds = 10
	}
	spin := s.policy(t, "spin", runtime.Options{Deadline: 2 * time.Millisecond})
	trap := s.policy(t, "grow", runtime.Options{})
	run := func() {
		for range rounds {
			if _, err := decide(t, spin, Input("spin")); err == nil {
				t.Fatal("it did not spin")
			}
			if _, err := decide(t, trap, Input("grow")); err == nil {
				t.Fatal("it did not trap")
			}
			runtime.Reset(spin) // so that they are asked every time
			runtime.Reset(trap)
		}
	}
	run()
	before, goroutines := heap(), goruntime.NumGoroutine()
	run()
	if after := heap(); after > before+13<<20 {
		t.Errorf("the heap grew from %d to %d KiB", before>>10, after>>10)
	}
	// What an engine started for a call may take a moment to end.
	for deadline := time.Now().Add(late); time.Now().Before(deadline); goruntime.Gosched() {
		if goruntime.NumGoroutine() <= goroutines+4 {
			return
		}
	}
	t.Errorf("%d goroutines, and there were %d", goruntime.NumGoroutine(), goroutines)
}

func heap() uint64 {
	var m goruntime.MemStats
	goruntime.GC()
	goruntime.GC()
	goruntime.ReadMemStats(&m)
	return m.HeapAlloc
}

// parallel: decisions of one policy do not meet.
func (s *suite) parallel(t *testing.T) {
	p := s.policy(t, "smuggle", runtime.Options{})
	raw, err := dsh.JSON(Input("smuggle"))
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 8)
	for range cap(failed) {
		go func() {
			for range 20 {
				v, err := p.Decide(t.Context(), dsh.Question{Hook: dsh.HookRecover, Input: raw})
				if err == nil && v.Decision.DelayMs != 2 {
					err = errors.New(string(v.Raw))
				}
				if err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	for range cap(failed) {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}
