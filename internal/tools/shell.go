package tools

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"time"

	"github.com/dsh-agent/dsh"
)

// The time that a command is given where nothing else is said, in seconds, and
// the size in bytes of the longest one: the system takes an argument of 128
// KiB (MAX_ARG_STRLEN of Linux).
const (
	defaultTimeout    = 120 * time.Second
	defaultMaxTimeout = 600 * time.Second
	maxCommand        = 100 << 10
)

const shellAbout = `Runs a command by the shell (bash if there is one, else sh), starting in the working folder, and returns what it writes to stdout and stderr as one text. ` +
	`It has no terminal and an empty stdin: a program that asks something gets no answer. Its environment has no keys or tokens. ` +
	`When it ends, or its time is up (see timeout), all that it started is ended with it: nothing goes on in the background. ` +
	`Of a long output the beginning and the end are shown. Nothing of one call's shell (folder, variables) is there in the next.`

// A Shell is how commands are run. The zero value of a field has a default.
type Shell struct {
	// Supervisor is the command, a path and arguments, of a process that calls
	// Supervise with the arguments behind its own. It is needed. Name is what
	// it is called as; "": its path.
	Supervisor []string
	Name       string

	Env     []string // of this process, as os.Environ gives it
	Secrets []string // names of variables that a command is never given
	Pass    []string // names of some that look like secrets and are given

	Timeout    time.Duration // of a command that asks for none; 0: 120 s
	MaxTimeout time.Duration // that a command may ask for; 0: 600 s

	// Processes is how many a command may have at a time; 0: 500 and 50 for
	// each processor. They are counted on Linux only.
	Processes int
}

// CanShell reports whether commands can be run on this system.
func CanShell() bool { return canShell }

// Shell returns the tool that runs commands.
func (f *Folder) Shell(s Shell) dsh.Tool {
	if s.MaxTimeout <= 0 {
		s.MaxTimeout = max(defaultMaxTimeout, s.Timeout)
	}
	if s.Timeout <= 0 {
		s.Timeout = min(defaultTimeout, s.MaxTimeout)
	}
	if s.Processes <= 0 {
		s.Processes = 500 + 50*runtime.NumCPU()
	}
	ceiling := int(math.Ceil(s.MaxTimeout.Seconds()))
	return asks(newChange("shell", shellAbout, []param{
		{name: "command", kind: "string", required: true, about: "The command, as for sh -c."},
		{
			name: "timeout", kind: "integer", about: "After how many seconds it is ended.",
			min: 1, max: ceiling, def: min(ceiling, int(math.Ceil(s.Timeout.Seconds()))),
		},
	}, func(ctx context.Context, args arguments) (answer, error) { return f.shell(ctx, s, args) }), askShell)
}

func (f *Folder) shell(ctx context.Context, s Shell, args arguments) (answer, error) {
	command := args.text("command")
	switch {
	case strings.TrimSpace(command) == "":
		return answer{}, mistakef("The command is empty.")
	case len(command) > maxCommand:
		return answer{}, mistakef("The command is %s long, and at most %s are allowed: write a script to a file and run that.", size(int64(len(command))), size(maxCommand))
	case strings.ContainsRune(command, 0):
		return answer{}, mistakef("The command has a NUL byte in it, which no command can have.")
	}
	limit := min(time.Duration(args.number("timeout"))*time.Second, s.MaxTimeout)
	timed, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var out capture
	end, err := f.command(timed, s, command, &out)
	switch {
	case ctx.Err() != nil:
		return answer{}, context.Cause(ctx)
	case err != nil:
		return answer{}, mistakef("The command could not be run: %v.", err)
	}
	return end.answer(&out, s, timed.Err() != nil, limit), nil
}

// An ending is how a command ended, as its supervisor tells it.
type ending struct {
	Pid       int    `json:"pid,omitempty"` // of the shell; told as it begins
	Done      bool   `json:"done,omitempty"`
	Exit      int    `json:"exit,omitempty"`
	Signal    string `json:"signal,omitempty"`    // that ended the shell; "": it exited
	Processes int    `json:"processes,omitempty"` // there were too many
	Left      int    `json:"left,omitempty"`      // ran on in the background, and were ended
	Alive     int    `json:"alive,omitempty"`     // could not be ended
	Error     string `json:"error,omitempty"`     // it could not be started
}

// answer puts what a command wrote and how it ended into words.
func (e ending) answer(out *capture, s Shell, timeout bool, limit time.Duration) answer {
	a := answer{text: out.text(), failed: true}
	switch {
	case e.Error != "":
		a.notef("the command could not be started: %s", e.Error)
	case e.Processes > 0:
		a.notef("ended by dsh: it ran %d processes at a time, and %d are allowed", e.Processes, s.Processes)
	case timeout:
		a.notef("ended by dsh: its %v were up, and it had not ended; a longer timeout can be asked for", limit)
	case !e.Done:
		a.notef("it ended in a way that nothing is known of: its supervisor was killed")
	case e.Signal != "":
		a.notef("ended by the signal %s", e.Signal)
	case e.Exit != 0:
		a.notef("exit code %d", e.Exit)
	default:
		a.failed = false
		if out.total == 0 {
			a.notef("exit code 0, and no output")
		}
	}
	if e.Left > 0 && !timeout && e.Processes == 0 {
		a.notef("%s it left running in the background: ended with it", ofProcesses(e.Left))
	}
	if e.Alive > 0 {
		a.notef("%s could not be ended, and may run on", ofProcesses(e.Alive))
	}
	return a
}

func ofProcesses(n int) string {
	if n == 1 {
		return "1 process"
	}
	return fmt.Sprintf("%d processes", n)
}
