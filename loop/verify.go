package loop

import (
	"iter"

	"github.com/dsh-agent/dsh"
)

// Verify reads one session's events, from the first, and holds them to the
// chain and to the invariants of a log. It returns how far the session is
// proven whole; its error says what is wrong with the event after that: a
// *dsh.DamageError, an *InvariantError, a *dsh.SchemaError, or what the
// sequence itself yielded.
func Verify(events iter.Seq2[dsh.Event, error]) (dsh.Tail, error) {
	var s state
	for e, err := range events {
		if err != nil {
			return s.tail, err
		}
		if err := s.tail.Check(e); err != nil {
			return s.tail, err
		}
		if err := s.apply(e); err != nil {
			return s.tail, err
		}
	}
	return s.tail, nil
}
