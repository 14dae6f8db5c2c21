package loop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/redact"
	"github.com/dsh-agent/dsh/loop"
)

var update = flag.Bool("update", false, "rewrite the logs of the stories")

// A story is a txtar file: what the provider answers (one JSON step a line),
// what is done to the session, and the log that comes of it.
type story struct {
	path    string
	archive *txtar.Archive
	steps   []reply
	config  storyConfig
	script  []string
}

// A reply is what the provider does with one request.
type reply struct {
	Text   []string       `json:"text"`
	Chunks []dsh.Chunk    `json:"chunks"`
	GapMs  int            `json:"gapMs"` // before each chunk, and before the end
	Finish dsh.FinishKind `json:"finish"`
	Fail   *dsh.Failure   `json:"fail"`   // thrown
	InBand *dsh.Failure   `json:"inBand"` // told by a finish
	Hang   bool           `json:"hang"`   // until the caller stops
	Usage  *dsh.Usage     `json:"usage"`
	Refuse string         `json:"refuse"` // Encode refuses
}

type storyConfig struct {
	MaxSteps   int              `json:"maxSteps"`
	Attempts   int              `json:"maxAttemptsPerStep"`
	WaitMs     int              `json:"maxWaitPerTurnMs"`
	Resent     int64            `json:"maxResentTokensPerTurn"`
	MinDelayMs int              `json:"minDelayMs"`
	Redact     []string         `json:"redact"`   // patterns
	Policies   []string         `json:"policies"` // names of storyPolicies; nil: ["retry"]
	Retry      *dsh.RetryPolicy `json:"retry"`
	Limit      int              `json:"limit"` // bodies over so many bytes are too long
	Window     int64            `json:"window"`

	SummaryMaxTokens int64 `json:"summaryMaxTokens"`

	Tools []string `json:"tools"` // besides those that are always there
}

func readStory(t *testing.T, path string) *story {
	t.Helper()
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := &story{path: path, archive: a}
	for _, f := range a.Files {
		switch f.Name {
		case "provider":
			dec := json.NewDecoder(bytes.NewReader(f.Data))
			dec.DisallowUnknownFields()
			for {
				var r reply
				if err := dec.Decode(&r); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("%s: provider: %v", path, err)
				}
				s.steps = append(s.steps, r)
			}
		case "config":
			if err := json.Unmarshal(f.Data, &s.config); err != nil {
				t.Fatalf("%s: config: %v", path, err)
			}
		case "script":
			s.script = strings.Split(strings.TrimSpace(string(f.Data)), "\n")
		}
	}
	if s.script == nil {
		s.script = []string{"prompt what is the answer?"}
	}
	return s
}

func stories(t *testing.T) []*story {
	t.Helper()
	paths, err := filepath.Glob("testdata/story/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	var all []*story
	for _, p := range paths {
		all = append(all, readStory(t, p))
	}
	return all
}

func (s *story) name() string { return strings.TrimSuffix(filepath.Base(s.path), ".txtar") }

// provider plays replies; the last one repeats. It counts what it was sent.
type provider struct {
	limit  int
	steps  []reply
	bodies [][]byte
	asked  int // Encode calls that were refused count as well
}

func (p *provider) next() reply {
	if len(p.steps) == 0 {
		return reply{Text: []string{"ok"}}
	}
	return p.steps[min(p.asked, len(p.steps)-1)]
}

func (p *provider) Encode(r dsh.Request) ([]byte, error) {
	if why := p.next().Refuse; why != "" {
		p.asked++
		return nil, &dsh.Failure{Code: dsh.CodeInvalidRequest, Message: why}
	}
	type message struct {
		Role    dsh.Role    `json:"role"`
		Content []dsh.Block `json:"content"`
	}
	var ms []message
	for _, m := range r.Messages {
		ms = append(ms, message(m))
	}
	return dsh.JSON(map[string]any{"model": r.Model, "system": r.System, "messages": ms, "tools": len(r.Tools)})
}

func (p *provider) Send(ctx context.Context, body []byte) iter.Seq2[dsh.Chunk, error] {
	return func(yield func(dsh.Chunk, error) bool) {
		p.bodies = append(p.bodies, bytes.Clone(body))
		if p.limit > 0 && len(body) > p.limit {
			yield(dsh.Chunk{}, &dsh.Failure{Code: dsh.CodeContextWindow, Status: 400, Message: limitMessage})
			return
		}
		r := p.next()
		p.asked++
		chunks := slices.Clone(r.Chunks)
		for _, s := range r.Text {
			chunks = append(chunks, dsh.Chunk{Type: dsh.ChunkText, Text: s})
		}
		for _, c := range chunks {
			if !pause(ctx, r.GapMs) {
				yield(dsh.Chunk{}, aborted(ctx))
				return
			}
			if !yield(c, nil) {
				return
			}
		}
		if r.Hang {
			<-ctx.Done()
		}
		if !pause(ctx, r.GapMs) {
			yield(dsh.Chunk{}, aborted(ctx))
			return
		}
		yield(r.end())
	}
}

func (r reply) end() (dsh.Chunk, error) {
	if r.Fail != nil {
		return dsh.Chunk{}, r.Fail
	}
	f := &dsh.Finish{Kind: r.Finish, Usage: r.Usage}
	if r.InBand != nil {
		f.Kind, f.Failure = dsh.FinishError, r.InBand
	}
	if f.Kind == "" {
		f.Kind = dsh.FinishStop
	}
	return dsh.Chunk{Type: dsh.ChunkFinish, Finish: f}, nil
}

func pause(ctx context.Context, ms int) bool {
	if ms == 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(time.Duration(ms) * time.Millisecond):
		return true
	case <-ctx.Done():
		return false
	}
}

func aborted(ctx context.Context) error {
	return &dsh.Failure{Code: dsh.CodeAborted, Message: "stopped", Cause: context.Cause(ctx)}
}

// storyPolicies are small native policies. retry is the built-in one's rule
// without jitter.
var storyPolicies = map[string]func(dsh.RecoverInput) dsh.Decision{
	"retry": func(in dsh.RecoverInput) dsh.Decision {
		p, n := in.RetryPolicy, 0
		for _, c := range in.RetryCounts {
			if c.Policy == in.Policy && c.PolicyKey == p.Key() && c.Purpose == in.Purpose {
				n = c.Count
			}
		}
		wait := dsh.Millis(in.Failure.RetryAfter)
		delay := min(p.InitialDelayMs*math.Pow(2, float64(n)), p.MaxDelayMs)
		if wait > 0 && wait <= p.MaxDelayMs {
			delay = wait
		}
		d := dsh.Decision{Kind: dsh.KindRetry, DelayMs: delay, Mode: p.Mode, PolicyKey: p.Key()}
		if p.Mode == dsh.ModeAlways {
			return dsh.Decision{Kind: dsh.KindDelegate, Fallback: &d}
		}
		d.MaxRetries = &p.MaxRetries
		switch {
		case !slices.Contains(p.RetryableCodes, in.Failure.Code):
			return dsh.Decision{Kind: dsh.KindDelegate, Reason: "not retryable"}
		case int64(n) >= p.MaxRetries:
			return dsh.Decision{Kind: dsh.KindDelegate, Reason: "retries used up"}
		case wait > p.MaxDelayMs:
			return dsh.Decision{Kind: dsh.KindDelegate, Reason: "the provider's wait is over the cap"}
		}
		return d
	},
	"delegate": func(dsh.RecoverInput) dsh.Decision {
		return dsh.Decision{Kind: dsh.KindDelegate, Reason: "not mine"}
	},
	"now":   func(dsh.RecoverInput) dsh.Decision { return dsh.Decision{Kind: dsh.KindRetry} },
	"fault": func(dsh.RecoverInput) dsh.Decision { return dsh.Decision{Kind: "nonsense"} },
	"repair": func(dsh.RecoverInput) dsh.Decision {
		return dsh.Decision{Kind: dsh.KindRetry, Repairs: []json.RawMessage{json.RawMessage(`{"kind":"prune"}`)}}
	},
}

// echo answers with its arguments; boom's machinery breaks; again may be run
// twice; look only reads, and takes so many ms; bad has no schema.
type storyTool struct {
	name string
	ran  func(what string)
}

func (t storyTool) Spec() dsh.ToolSpec {
	spec := dsh.ToolSpec{Name: t.name, Description: t.name, Schema: json.RawMessage(`{"type":"object"}`), Idempotent: t.name == "again"}
	switch t.name {
	case "look":
		spec.Schema = json.RawMessage(`{"type":"object","properties":{"ms":{"type":"integer","minimum":0}},"required":["ms"],"additionalProperties":false}`)
		spec.ReadOnly = true
	case "bad":
		spec.Schema = json.RawMessage(`{"$ref":"https://example.com/schema.json"}`)
	}
	return spec
}

var errBoom = errors.New("boom is broken")

func (t storyTool) Run(ctx context.Context, args json.RawMessage) (dsh.ToolResult, error) {
	if t.name != "look" { // several begin at one time, in any order
		t.ran(t.name + string(args))
	}
	switch t.name {
	case "look":
		var a struct{ Ms int }
		if err := json.Unmarshal(args, &a); err != nil {
			return dsh.ToolResult{}, err
		}
		select {
		case <-time.After(time.Duration(a.Ms) * time.Millisecond):
		case <-ctx.Done():
			return dsh.ToolResult{}, context.Cause(ctx)
		}
		t.ran(fmt.Sprintf("seen%d", a.Ms))
	case "boom":
		return dsh.ToolResult{}, errBoom
	case "big":
		return dsh.ToolResult{Content: []dsh.Block{dsh.TextBlock(strings.Repeat("the quick brown fox ", 1850))}}, nil
	}
	return dsh.ToolResult{Content: []dsh.Block{dsh.TextBlock(string(args))}}, nil
}

// A play is a story under way.
type play struct {
	story    *story
	provider *provider
	log      dsh.Log
	ranMu    sync.Mutex
	runs     []string // what tools ran
	answers  []string
	errs     []error
	out      []loop.Outcome
	prompts  int // that were given
	compacts int
	resumes  bool // after a failed append, as a supervisor does
	changes  chan struct{}
	policies []string
}

// limitMessage is what a provider says of a body over the limit.
const limitMessage = "over the limit of this provider"

const compactWord = "-compact-"

const storyID = dsh.SessionID("story")

func (s *story) play(log dsh.Log) *play {
	p := &play{story: s, provider: &provider{steps: s.steps, limit: s.config.Limit}, log: log, changes: make(chan struct{}), policies: s.config.Policies}
	if p.policies == nil {
		p.policies = []string{"retry"}
	}
	return p
}

// Policies makes a play a waterfall.
func (p *play) Policies() ([]dsh.Policy, <-chan struct{}) {
	var list []dsh.Policy
	for _, n := range p.policies {
		if n == "compaction" {
			list = append(list, compactionPolicy{})
			continue
		}
		list = append(list, dsh.NativePolicy(n, storyPolicies[n]))
	}
	return list, p.changes
}

func (p *play) config(front loop.Front) loop.Config {
	c := p.story.config
	retry := dsh.DefaultRetryPolicy()
	retry.JitterRatio = 0
	if c.Retry != nil {
		retry = *c.Retry
	}
	cfg := loop.Config{
		Provider: "mock", Model: "m-1", System: "be brief", MaxSteps: c.MaxSteps,
		Limits: loop.Limits{
			MaxAttemptsPerStep: c.Attempts, MaxWaitPerTurn: time.Duration(c.WaitMs) * time.Millisecond,
			MaxResentTokensPerTurn: c.Resent, MinDelay: time.Duration(c.MinDelayMs) * time.Millisecond,
		},
		Providers: func(name string) (loop.Provider, error) {
			if name != "mock" {
				return loop.Provider{}, fmt.Errorf("no provider %q", name)
			}
			return loop.Provider{Adapter: p.provider, Retry: retry, Window: c.Window}, nil
		},
		Policies: p, Front: front, SummaryMaxTokens: c.SummaryMaxTokens,
	}
	if len(c.Redact) > 0 {
		patterns, err := redact.Compile(c.Redact)
		if err != nil {
			panic(err)
		}
		cfg.Redact, cfg.RedactText = patterns.JSON, func() loop.TextRedactor { return patterns.Stream() }
	}
	for _, n := range append([]string{"echo", "boom", "again", "big"}, c.Tools...) {
		cfg.Tools = append(cfg.Tools, storyTool{n, p.ran})
	}
	return cfg
}

func (p *play) ran(what string) {
	p.ranMu.Lock()
	defer p.ranMu.Unlock()
	p.runs = append(p.runs, what)
}

// act runs the story's script: "prompt TEXT", "resume", each optionally after
// lines "on TYPE N abort|suspend|break|policies A,B" that act on the N-th
// event of a type.
func (p *play) act(t *testing.T) {
	t.Helper()
	var triggers [][]string
	for _, line := range p.story.script {
		words := strings.Fields(line)
		switch words[0] {
		case "on":
			triggers = append(triggers, words[1:])
			continue
		case "prompt":
			p.prompts++
			p.run(t, triggers, promptText(line))
		case "resume":
			p.run(t, triggers, "")
		case "compact":
			p.compacts++
			p.run(t, triggers, compactWord)
		case "policies":
			p.policies = strings.Split(words[1], ",")
		default:
			t.Fatalf("%s: no word %q", p.story.path, words[0])
		}
		triggers = nil
		if p.resumes && errors.Is(p.errs[len(p.errs)-1], errDisk) {
			p.finish(t, line)
		}
	}
}

var errFront = errors.New("the screen went away")

func (p *play) run(t *testing.T, triggers [][]string, prompt string) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	seen := map[string]int{}
	front := loop.Front{
		Event: func(e dsh.Event) error {
			seen[string(e.Type)]++
			for _, tr := range triggers {
				if n, _ := strconv.Atoi(tr[1]); tr[0] != string(e.Type) || seen[tr[0]] != n {
					continue
				}
				switch tr[2] {
				case "abort":
					cancel(loop.ErrAbort)
				case "suspend":
					cancel(loop.ErrSuspend)
				case "break":
					return errFront
				case "policies":
					p.policies = strings.Split(tr[3], ",")
					close(p.changes)
					p.changes = make(chan struct{})
				}
			}
			return nil
		},
		Answer: func(m dsh.AssistantMessage) error {
			for _, tr := range triggers {
				if tr[0] == "answer" {
					return errFront
				}
			}
			p.answers = append(p.answers, dsh.Text(m.Content))
			return nil
		},
	}
	s, err := p.session(ctx, front, prompt)
	if err != nil {
		p.errs, p.out = append(p.errs, err), append(p.out, loop.Outcome{})
		return
	}
	var out loop.Outcome
	switch prompt {
	case "":
		out, err = s.Resume(ctx)
	case compactWord:
		out, err = s.Compact(ctx)
	default:
		out, err = s.Prompt(ctx, []dsh.Block{dsh.TextBlock(prompt)})
	}
	p.errs, p.out = append(p.errs, err), append(p.out, out)
	if err := s.Close(context.Background()); err != nil && p.errs[len(p.errs)-1] == nil {
		t.Errorf("%s: close: %v", p.story.path, err)
	}
}

func (p *play) session(ctx context.Context, front loop.Front, prompt string) (*loop.Session, error) {
	_, err := p.log.Head(ctx, storyID)
	if errors.Is(err, dsh.ErrNoSession) && prompt != "" {
		return loop.Create(ctx, p.log, dsh.SessionStart{ID: storyID, Cwd: "/w", Title: cutTitle(prompt)}, p.config(front))
	}
	return loop.Open(ctx, p.log, storyID, p.config(front))
}

var (
	randomID = regexp.MustCompile(`"(id|retryId|decisionId|compactionId)":"[0-9a-f]{32}"`)
	randoms  = regexp.MustCompile(`"random":\[[^\]]*\]`)
	digests  = regexp.MustCompile(`[0-9a-f]{64}`)
	long     = regexp.MustCompile(`((?:[a-z]+ ){8})(?:[a-z]+ ){20,}`)
	inputs   = regexp.MustCompile(`"input":\{.*\},"hostCalls"`)
)

// events reads the log back.
func events(t *testing.T, log dsh.Log) []dsh.Event {
	t.Helper()
	var all []dsh.Event
	for e, err := range log.Read(t.Context(), storyID, 0) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

// transcript is the log for a golden file: ids and digests masked, times as ms
// since the first event.
func transcript(all []dsh.Event) string {
	var b strings.Builder
	for _, e := range all {
		data := string(e.Data)
		data = randomID.ReplaceAllString(data, `"$1":"…"`)
		data = randoms.ReplaceAllString(data, `"random":[…]`)
		data = inputs.ReplaceAllString(data, `"input":{…},"hostCalls"`)
		data = long.ReplaceAllString(data, "$1… ")
		data = digests.ReplaceAllString(data, `…`)
		data = regexp.MustCompile(`"notBefore":\d+`).ReplaceAllStringFunc(data, func(m string) string {
			n, _ := strconv.ParseInt(m[len(`"notBefore":`):], 10, 64)
			return fmt.Sprintf(`"notBefore":+%d`, n-all[0].At)
		})
		surface := ""
		if e.Surface != nil {
			surface = " ^" + e.Surface.Op
		}
		fmt.Fprintf(&b, "%3d +%-6d %s%s %s\n", e.Seq, e.At-all[0].At, e.Type, surface, data)
	}
	return b.String()
}

// result is what the story says besides the log.
func (p *play) result() string {
	var b strings.Builder
	for i, o := range p.out {
		fmt.Fprintf(&b, "status=%s attempts=%d retries=%d waitedMs=%d retryAt=%v error=%v text=%q message=%q\n",
			o.Status, o.Attempts, o.Retries, o.WaitedMs, o.RetryAt > 0, p.errs[i], o.Text, o.Message)
	}
	fmt.Fprintf(&b, "requests=%d tools=%q answers=%q\n", len(p.provider.bodies), p.runs, p.answers)
	return b.String()
}

// compare holds a part of the story to what came of it, or rewrites it.
func (s *story) compare(t *testing.T, name, got string) {
	t.Helper()
	for i, f := range s.archive.Files {
		if f.Name != name {
			continue
		}
		if string(f.Data) != got {
			if *update {
				s.archive.Files[i].Data = []byte(got)
				return
			}
			t.Errorf("%s: %s\n--- got\n%s--- want\n%s", s.path, name, got, f.Data)
		}
		return
	}
	if !*update {
		t.Fatalf("%s: no part %q (run with -update)", s.path, name)
	}
	s.archive.Files = append(s.archive.Files, txtar.File{Name: name, Data: []byte(got)})
}

func (s *story) save(t *testing.T) {
	t.Helper()
	if *update {
		if err := os.WriteFile(s.path, txtar.Format(s.archive), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func promptText(line string) string {
	text := strings.TrimPrefix(line, "prompt ")
	if n, ok := strings.CutPrefix(text, "long "); ok {
		times, _ := strconv.Atoi(n)
		text = strings.Repeat("tell me more of it ", times)
	}
	return text
}

func cutTitle(s string) string { return s[:min(len(s), 40)] }

// compactionPolicy does what the built-in compaction does, natively: an
// overflow is pruned and then summarised, twice a step; pressure the same.
type compactionPolicy struct{}

func (compactionPolicy) Info() dsh.PolicyInfo {
	info := dsh.NativePolicy("compaction", nil).Info()
	info.Granted = []string{"repair.prune", "repair.compact"}
	info.Hooks = []dsh.Hook{dsh.HookRecover, dsh.HookBeforeStep}
	return info
}

func (compactionPolicy) Decide(_ context.Context, q dsh.Question) (dsh.Verdict, error) {
	var in dsh.RecoverInput
	if err := json.Unmarshal(q.Input, &in); err != nil {
		return dsh.Verdict{}, &dsh.Fault{Kind: dsh.FaultSchema, Message: err.Error()}
	}
	d := dsh.Decision{Kind: dsh.KindDelegate, Reason: "not an overflow"}
	rounds := 0
	for _, r := range in.Repairs {
		if r.Kind == dsh.RepairCompact {
			rounds++
		}
	}
	repairs := []json.RawMessage{
		json.RawMessage(`{"kind":"prune"}`),
		json.RawMessage(fmt.Sprintf(`{"kind":"compact","ifOverTokens":%d}`, min(in.Surface.Tokens, max(in.Surface.Window, 9000))*8/10)),
	}
	switch {
	case q.Hook == dsh.HookBeforeStep:
		d = dsh.Decision{Kind: dsh.KindProceed}
		if rounds == 0 && in.Surface.Tokens > in.Surface.Window*8/10 {
			d.Repairs = append(repairs[:1], json.RawMessage(fmt.Sprintf(`{"kind":"compact","retainTokens":%d}`, in.Surface.Window*16/100)))
		}
	case in.Failure.Code != dsh.CodeContextWindow:
	case in.Purpose == dsh.PurposeCompaction:
		three := int64(3)
		d = dsh.Decision{Kind: dsh.KindRetry, MaxRetries: &three}
	case rounds >= 2:
		d.Reason = "the step's two rounds are used up"
	default:
		if rounds > 0 || len(in.Repairs) > 0 {
			repairs = []json.RawMessage{json.RawMessage(`{"kind":"compact"}`)}
		}
		d = dsh.Decision{Kind: dsh.KindRetry, Repairs: repairs, PolicyKey: "overflow"}
	}
	raw, err := dsh.JSON(d)
	return dsh.Verdict{Decision: d, Raw: raw}, err
}
