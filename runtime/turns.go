package runtime

import (
	"context"
	"errors"
	goruntime "runtime"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/runtime/internal/meter"
)

// turns bounds how many decisions of a policy are computed at once. When a
// provider fails for ten thousand sessions at the same moment they all ask, and
// if all were computed at once, each with memory of its own, few would be done
// within their time.
type turns chan struct{}

// turnsOfProcessor is how many share one. A decision computes and does not wait,
// but the goroutines that ask for it and take its answer do, behind all others:
// with one for each processor these idle, and the log gets the decisions one by
// one rather than many in a transaction.
const turnsOfProcessor = 32

func newTurns() turns { return make(turns, turnsOfProcessor*goruntime.GOMAXPROCS(0)) }

// take waits for a turn, for as long as the caller does: it is not the guest's
// time, and those before it are bounded by theirs.
func (t turns) take(ctx context.Context) error {
	select {
	case t <- struct{}{}:
		return nil
	case <-ctx.Done():
		return &dsh.Fault{Kind: dsh.FaultDeadline, Message: "it was stopped before its turn", Cause: context.Cause(ctx)}
	}
}

func (t turns) give() { <-t }

// lend gives the turn up while f, which is the host's work, is under way.
// Where the caller ends meanwhile the turn is taken all the same: what is left
// is short.
func (t turns) lend(f func() []byte) []byte {
	t.give()
	answer := f()
	t <- struct{}{}
	return answer
}

// littleFuel is what a guest uses up in a few milliseconds.
const littleFuel = meter.DecisionFuel / 100

// starved reports whether a call was over its deadline because the machine had
// no time for it: it had hardly begun. A guest that computes is at the end of
// its fuel long before its deadline.
func (p *policy) starved(ctx context.Context, r Result, err error) bool {
	var f *dsh.Fault
	return ctx.Err() == nil && errors.As(err, &f) && f.Kind == dsh.FaultDeadline && r.Fuel < littleFuel && !p.checked.spec.Process
}
