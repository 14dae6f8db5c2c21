package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/loop"
)

// The forms of `dsh run --output`.
const (
	outputText   = "text"
	outputJSON   = "json"
	outputStream = "stream-json"
)

// runFlags are the flags of `dsh run`.
type runFlags struct {
	output   string
	resume   string
	maxSteps int
	maxWait  time.Duration
	yes      bool
	tools    string
	cwd      string
}

func (a *app) runCommand() *cobra.Command {
	var f runFlags
	c := &cobra.Command{
		Use:   "run [PROMPT]",
		Short: "Run one turn: the answer on stdout, how it came on stderr",
		Long: `Runs one turn in a new session, or with --resume in one that is there. The
prompt is the argument; without one, or for "-", it is read from stdin
(UTF-8 text of 10 MiB at most).

With --resume and no prompt the open turn is finished, or the last one taken up
again if it failed; stdin is then read for "-" only.

Tools that change things (write, edit, shell, those of servers) ask before they
run if stdin and stderr are a terminal. Elsewhere they are denied, which the
model is told, unless --yes lets them run or dsh.toml grants them (tools.allow).

Exit codes: 0 done, 2 usage or configuration, 3 the provider failed for good,
75 it failed in a way that passes (come back later), 4 the log, 5 a limit cut
the turn, 130 stopped by SIGINT, 143 suspended by SIGTERM, 1 anything else.`,
		Example: `  dsh run "what does this repository do?"
  git diff | dsh run --tools none -
  dsh run --resume last`,
		Args: between(0, 1, "one prompt (quote it)"),
		RunE: func(c *cobra.Command, args []string) error { return a.run(c, f, args) },
	}
	fl := c.Flags()
	fl.StringVar(&f.output, "output", outputText, "`text`, json (one object at the end) or stream-json (the log's events, a line each)")
	fl.StringVar(&f.resume, "resume", "", "goes on in a session: its `ID`, a beginning of it, or last")
	fl.IntVar(&f.maxSteps, "max-steps", 0, "ends the turn after `N` steps (0: as configured)")
	fl.DurationVar(&f.maxWait, "max-wait", 0, "gives up rather than wait longer than this `duration` in all, as 90s or 5m (0: as configured)")
	fl.BoolVar(&f.yes, "yes", false, "lets tools that change things run without a question")
	fl.StringVar(&f.tools, "tools", "", "the tools that the model may call: a `list`, or none (default: as configured)")
	fl.StringVar(&f.cwd, "cwd", "", "the working `folder` of the session's tools")
	return c
}

func (a *app) run(c *cobra.Command, f runFlags, args []string) error {
	ctx := c.Context()
	if err := a.checkRun(c, &f); err != nil {
		return err
	}
	text, given, err := a.prompt(ctx, args, c.Flags().Changed("resume"))
	if err != nil {
		return err
	}
	cwd, err := folder(f.cwd)
	if err != nil {
		return err
	}
	setup, err := a.program.Setup(ctx, a.common, RunOptions{
		Cwd: cwd, Tools: toolList(c.Flags().Changed("tools"), f.tools), MaxSteps: f.maxSteps, MaxWait: f.maxWait, Yes: f.yes, Ask: a.person(),
	})
	if err != nil {
		return err
	}
	t := turn{app: a, setup: setup, log: markLog(setup.Log), output: f.output, prompt: text, given: given}
	return a.closing(t.inSession(ctx, f.resume, cwd), setup)
}

// person asks at the terminal; nil where there is nobody to read and answer.
func (a *app) person() func(context.Context, string, string) (Answer, error) {
	if !a.inTerminal || a.say.errSize == nil {
		return nil
	}
	return (&asker{say: a.say, in: a.in}).ask
}

// closing closes a setup. A log that could not be closed well is the command's
// error where there is no other; anything else is said.
func (a *app) closing(err error, setup *Setup) error {
	closed := setup.Close()
	if closed == nil {
		return err
	}
	var log *LogError
	if err == nil && errors.As(closed, &log) {
		return closed
	}
	a.common.Warn(closed.Error())
	return err
}

// checkRun holds the flags of `dsh run` to what they may be.
func (a *app) checkRun(c *cobra.Command, f *runFlags) error {
	var problems []string
	wrong := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if a.common.JSON {
		if c.Flags().Changed("output") && f.output != outputJSON {
			wrong("--json and --output %s exclude each other", oneLine(f.output, 40))
		}
		f.output = outputJSON
	}
	switch f.output {
	case outputText, outputJSON, outputStream:
	default:
		wrong("--output %q is not known: text, json or stream-json", oneLine(f.output, 40))
	}
	if f.maxSteps < 0 || f.maxSteps == 0 && c.Flags().Changed("max-steps") {
		wrong("--max-steps %d is not positive", f.maxSteps)
	}
	if f.maxWait < 0 || f.maxWait == 0 && c.Flags().Changed("max-wait") {
		wrong("--max-wait %s is not positive", f.maxWait)
	}
	if c.Flags().Changed("resume") && strings.TrimSpace(f.resume) == "" {
		wrong("--resume needs a session's id, or last")
	}
	if len(problems) > 0 {
		return &UsageError{problems}
	}
	return nil
}

// toolList reads --tools: a list with commas, or "none".
func toolList(given bool, list string) *[]string {
	if !given {
		return nil
	}
	names := []string{}
	for n := range strings.SplitSeq(list, ",") {
		if n = strings.TrimSpace(n); n != "" && n != "none" {
			names = append(names, n)
		}
	}
	return &names
}

// folder makes the path of --cwd absolute; "" stays.
func folder(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", Usagef("--cwd %s: %v", path, err)
	}
	switch info, err := os.Stat(abs); {
	case errors.Is(err, os.ErrNotExist):
		return "", Usagef("--cwd %s: there is no such folder", path)
	case err != nil:
		return "", Usagef("--cwd %s: %v", path, err)
	case !info.IsDir():
		return "", Usagef("--cwd %s is no folder", path)
	}
	return abs, nil
}

// A turn is one `dsh run`, or the one of `dsh demo`.
type turn struct {
	*app
	setup  *Setup
	log    dsh.Log // of the setup, marked
	output string
	prompt string
	given  bool // a prompt was given
	manual bool // it is a compaction, and no more

	session *loop.Session
	cfg     loop.Config
	head    dsh.Head // of a resumed session, as it was
	front   *front
}

// inSession runs the turn in a new session, or in the one that resume names.
func (t *turn) inSession(ctx context.Context, resume, cwd string) error {
	if err := t.open(ctx, resume, cwd); err != nil {
		return err
	}
	outcome, err := t.play(ctx)
	if err != nil {
		return t.failedRun(ctx, outcome, err)
	}
	if t.output == outputJSON {
		if err := writeJSON(t.app.out, outcome); err != nil {
			return fmt.Errorf("%w; nothing is lost: dsh sessions show %s", err, outcome.Session)
		}
	}
	return t.conclude(ctx, outcome)
}

// open makes or opens the session, with a front that shows it.
func (t *turn) open(ctx context.Context, resume, cwd string) (err error) {
	if resume == "" {
		cwd = t.setup.Cwd
	} else {
		if t.head, err = find(ctx, t.log, resume); err != nil {
			return err
		}
		if t.head.ID.Reserved() {
			return &loop.ReservedError{Session: t.head.ID}
		}
		if cwd == "" {
			if cwd = t.head.Cwd; !isFolder(cwd) && !t.manual {
				return Usagef("the folder of session %s is gone (%s): name another with --cwd", t.head.ID, oneLine(cwd, 200))
			}
		}
	}
	if t.cfg, err = t.setup.Configure(cwd); err != nil {
		return err
	}
	t.front = newFront(t.app, t.output, t.setup)
	t.cfg.Front = loop.Front{Event: t.front.event, Chunk: t.front.chunk, Answer: t.front.answer}
	if resume != "" {
		t.session, err = loop.Open(ctx, t.log, t.head.ID, t.cfg)
		return err
	}
	start := dsh.SessionStart{ID: newSessionID(time.Now()), Cwd: cwd, Title: titleOf(t.prompt)}
	t.session, err = loop.Create(ctx, t.log, start, t.cfg)
	return err
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// play runs the turn to its end, and shows the log as it grows where that is
// asked for. The session is closed and all is shown when it returns.
func (t *turn) play(ctx context.Context) (loop.Outcome, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	t.front.stop = stop
	if t.verbose() {
		t.say.line(dim, "session "+string(t.session.ID()))
	}
	var f *follower
	if t.output == outputStream {
		f = follow(ctx, t.log, t.session, t.app.out, func(error) { stop(loop.ErrSuspend) })
	}
	var (
		outcome loop.Outcome
		err     error
	)
	switch {
	case t.manual:
		outcome, err = t.session.Compact(ctx)
	case t.given:
		outcome, err = t.session.Prompt(ctx, []dsh.Block{dsh.TextBlock(t.prompt)})
	default:
		t.front.pending(ctx, t.log, t.head)
		outcome, err = t.session.Resume(ctx)
	}
	t.front.done()
	closed := t.session.Close(context.WithoutCancel(ctx))
	if f != nil {
		if shown := f.drain(ctx); shown != nil && (err == nil || errors.Is(err, loop.ErrSuspend)) {
			err = shown
		}
	}
	if failed := t.app.out.err(); failed != nil && !t.front.hungUp && (err == nil || errors.Is(err, loop.ErrSuspend)) {
		err = failed
	}
	switch {
	case closed == nil:
	case err == nil:
		err = closed
	default:
		t.common.Warn(closed.Error())
	}
	return outcome, err
}

func (a *app) verbose() bool { return a.common.Verbose && !a.common.Quiet }

// failedRun adds to an error that ended a run what the user can do.
func (t *turn) failedRun(ctx context.Context, o loop.Outcome, err error) error {
	var output *outputError
	switch {
	case errors.Is(err, loop.ErrNothingOpen):
		return Usagef("the last turn of session %s is complete: give a prompt to go on, or see it with dsh sessions show %s", t.head.ID, t.head.ID)
	case errors.As(err, &output) && o.Status == dsh.EndCompleted:
		return fmt.Errorf("%w; nothing is lost: dsh sessions show %s", err, t.session.ID())
	case errors.As(err, &output):
		return fmt.Errorf("%w; nothing is lost: dsh run --resume %s", err, t.session.ID())
	case t.front.hungUp && errors.Is(err, loop.ErrSuspend):
		return exit(ExitTerminated)
	case ctx.Err() != nil && errors.Is(err, loop.ErrSuspend):
		t.progress(plain, "dsh: suspended; dsh run --resume "+string(t.session.ID())+" goes on")
	}
	return err
}
