package loop

import (
	"fmt"
	"reflect"

	"github.com/dsh-agent/dsh"
)

// CheckSnapshots takes a snapshot at each end of a turn, folds the rest of the
// events onto it, and wants what the fold of all of them comes to.
func CheckSnapshots(events []dsh.Event) error {
	whole, err := folded(state{}, events)
	if err != nil {
		return err
	}
	for i, e := range events {
		if e.Type != dsh.TypeTurnEnd {
			continue
		}
		s, err := folded(state{}, events[:i+1])
		if err != nil {
			return err
		}
		data, err := s.encode()
		if err != nil {
			return err
		}
		back, err := decodeState(dsh.Snapshot{Tail: e.Tail(), Data: data})
		if err != nil {
			return fmt.Errorf("at event %d: %w", e.Seq, err)
		}
		if back, err = folded(back, events[i+1:]); err != nil {
			return fmt.Errorf("after a snapshot at event %d: %w", e.Seq, err)
		}
		want := whole
		if back.turn.n == s.turn.n { // an ended turn is kept as what is asked of it
			t := *want.turn
			want.turn = &turn{n: t.n, manual: t.manual, end: t.end}
		}
		if !reflect.DeepEqual(back, want) {
			return fmt.Errorf("a snapshot at event %d: \n%+v\nwant\n%+v", e.Seq, back, want)
		}
	}
	return nil
}

func folded(s state, events []dsh.Event) (state, error) {
	for _, e := range events {
		if err := s.apply(e); err != nil {
			return s, err
		}
	}
	return s, nil
}
