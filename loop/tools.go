package loop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/internal/schema"
)

const unknownOutcome = "The outcome of this call is unknown: the process that ran it ended before the result was stored. It was not run again. Check what it did before you repeat it."

// The most that one answer of a model is given of tools. What is over maxCalls
// is answered without being run: a model that asks for thousands has lost its
// way. maxParallel is what reads of one disk gain from.
const (
	maxCalls    = 128
	maxParallel = 10
)

// A job is a call and what is to be done for it.
type job struct {
	call
	tool   dsh.Tool
	args   json.RawMessage
	answer *dsh.ToolResult // known without running anything
}

// runTools answers the calls of the step's message. Those that only read run
// side by side, one that changes things runs alone, and the results are stored
// in the model's order. A call that a dead process had begun is not made again,
// unless its tool is idempotent.
func (s *Session) runTools(ctx context.Context) error {
	jobs := s.jobs()
	for len(jobs) > 0 {
		if ctx.Err() != nil {
			return errStopped
		}
		if s.frontErr != nil {
			return nil
		}
		n := together(jobs)
		if err := s.runJobs(ctx, jobs[:n]); err != nil {
			return err
		}
		jobs = jobs[n:]
	}
	return nil
}

// jobs are the calls that have no result, each with what is known ahead.
func (s *Session) jobs() []job {
	st := s.state.openStep()
	var jobs []job
	for i, c := range st.calls {
		if c.answered {
			continue
		}
		j := job{call: c, tool: s.tool(c.block.Name)}
		var err error
		switch {
		case c.started && (j.tool == nil || !j.tool.Spec().Idempotent):
			j.know(unknownOutcome)
		case j.tool == nil:
			j.know(fmt.Sprintf("There is no tool %q. %s", cut(c.block.Name, 200), s.toolList()))
		case i >= maxCalls:
			j.know(fmt.Sprintf("The call was not made: an answer may make %d calls, and this one makes %d.", maxCalls, len(st.calls)))
		default:
			if j.args, err = s.arguments(j.tool, c.block.Arguments); err != nil {
				j.know(fmt.Sprintf("INVALID_ARGS: %v. What was sent: %s", err, cut(c.block.Arguments, 200)))
			}
		}
		jobs = append(jobs, j)
	}
	return jobs
}

func (j *job) know(text string) {
	r := errorResult(text)
	j.answer = &r
}

// arguments holds the arguments of a call to the tool's schema.
func (s *Session) arguments(tool dsh.Tool, raw string) (json.RawMessage, error) {
	args, err := arguments(raw)
	if err != nil {
		return nil, err
	}
	spec := tool.Spec()
	compiled, ok := s.schemas[spec.Name]
	if !ok {
		if compiled, err = schema.Compile(spec.Schema); err != nil {
			return nil, fmt.Errorf("%s cannot be called, its own schema is not usable: %w", spec.Name, err)
		}
		if s.schemas == nil {
			s.schemas = map[string]*schema.Schema{}
		}
		s.schemas[spec.Name] = compiled
	}
	if problems := compiled.Check(args); len(problems) > 0 {
		return nil, errors.New(strings.Join(problems, "; "))
	}
	return args, nil
}

// together is how many of the jobs can be done at a time: the first, and those
// behind it that change nothing, if it changes nothing.
func together(jobs []job) int {
	running := 0
	for n, j := range jobs {
		if j.answer != nil {
			continue
		}
		if !j.tool.Spec().ReadOnly {
			return max(1, n)
		}
		if running++; running > maxParallel {
			return n
		}
	}
	return len(jobs)
}

// A returned is what came of running a tool. err is of the tool's machinery.
type returned struct {
	result dsh.ToolResult
	err    error
}

// runJobs makes the calls durable, runs them side by side, and stores their
// results in the model's order, each as soon as those before it are stored. What is
// known without running anything goes into the append before it.
func (s *Session) runJobs(ctx context.Context, jobs []job) error {
	if err := s.append(ctx, s.callsOf(jobs)...); err != nil {
		return err
	}
	var running sync.WaitGroup
	defer running.Wait()
	results := make([]chan returned, len(jobs))
	for i, j := range jobs {
		results[i] = make(chan returned, 1)
		if j.answer != nil {
			results[i] <- returned{result: *j.answer}
			continue
		}
		running.Go(func() { results[i] <- run(ctx, j.tool, j.args) })
	}
	var drafts []dsh.Draft
	for i, j := range jobs {
		r := <-results[i]
		switch stopped := ctx.Err() != nil && j.answer == nil; {
		case stopped && !errors.Is(context.Cause(ctx), ErrAbort):
			return errStopped // suspended: the call's outcome is unknown, as after a crash
		case errors.Is(r.err, errNotStarted):
			r.result = errorResult("The tool was not started: the turn was stopped before.")
		case stopped && r.err != nil:
			r.result = errorResult("The call was stopped by the user. What it did until then is not undone.")
		case r.err != nil:
			return &turnError{fmt.Errorf("tool %s: %w", j.block.Name, r.err)}
		}
		drafts = append(drafts, s.result(j.block.ID, s.nudged(j.block.ID, r.result)))
		if i+1 < len(jobs) && jobs[i+1].answer != nil {
			continue // it is known, and goes into the same append: there may be thousands
		}
		if err := s.append(ctx, drafts...); err != nil {
			return err
		}
		drafts = nil
	}
	return nil
}

// callsOf are the events of the calls that no process has begun.
func (s *Session) callsOf(jobs []job) []dsh.Draft {
	var drafts []dsh.Draft
	for _, j := range jobs {
		if !j.started {
			d := dsh.ToolCall{Turn: s.state.turn.n, Step: s.state.turn.step.n, CallID: j.block.ID, Name: j.block.Name, Arguments: j.block.Arguments}
			drafts = append(drafts, dsh.Draft{Type: dsh.TypeToolCall, Data: d})
		}
	}
	return drafts
}

// errNotStarted is the error of a tool whose turn was stopped between its
// tool/call and its start.
var errNotStarted = errors.New("not started")

func run(ctx context.Context, tool dsh.Tool, args json.RawMessage) (r returned) {
	defer func() {
		if p := recover(); p != nil {
			r.err = fmt.Errorf("panic: %v", p)
		}
	}()
	if ctx.Err() != nil {
		return returned{err: errNotStarted}
	}
	r.result, r.err = tool.Run(ctx, args)
	return r
}

// nudges are the lengths of a row of identical calls at which the model is told.
func nudges() []int { return []int{3, 5, 8} }

// nudged is a call's result, with a note where the model goes in a circle.
func (s *Session) nudged(id string, r dsh.ToolResult) dsh.ToolResult {
	st := s.state.openStep()
	i := slices.IndexFunc(st.calls, func(c call) bool { return c.block.ID == id })
	if i < 0 || !slices.Contains(nudges(), st.calls[i].row) {
		return r
	}
	note := fmt.Sprintf("[This was the same call with the same arguments for the %dth time in a row. Repeating it will not help: use what it returned, try something else, or say what is in the way.]", st.calls[i].row)
	if st.calls[i].row == 3 {
		note = strings.Replace(note, "3th", "3rd", 1)
	}
	r.Content = append(slices.Clone(r.Content), dsh.TextBlock(note))
	return r
}

func (s *Session) tool(name string) dsh.Tool {
	i := slices.IndexFunc(s.cfg.Tools, func(t dsh.Tool) bool { return t.Spec().Name == name })
	if i < 0 {
		return nil
	}
	return s.cfg.Tools[i]
}

func (s *Session) toolList() string {
	var names []string
	for _, t := range s.cfg.Tools {
		names = append(names, t.Spec().Name)
	}
	if len(names) == 0 {
		return "No tools are available."
	}
	return "The tools are: " + strings.Join(names, ", ") + "."
}

func (s *Session) result(id string, r dsh.ToolResult) dsh.Draft {
	d := dsh.ToolResultEvent{Turn: s.state.turn.n, Step: s.state.turn.step.n, CallID: id, Content: emptyNotNull(r.Content), IsError: r.IsError}
	return dsh.Draft{Type: dsh.TypeToolResult, Data: d, Surface: onSurface()}
}

func errorResult(text string) dsh.ToolResult {
	return dsh.ToolResult{Content: []dsh.Block{dsh.TextBlock(text)}, IsError: true}
}

// cut shortens a text to n bytes for a message, without splitting a rune.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + " …"
}
