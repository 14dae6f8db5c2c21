package runtime

import (
	"context"

	"github.com/dsh-agent/dsh"
)

// version is one version of a policy in a waterfall. Whoever holds it may ask
// it at any time: also after another has taken its place, so that a walk down
// an old list ends as it began. A retired version is freed when nobody asks it,
// and made again for whoever still does.
type version struct {
	set      *Set
	spec     Spec
	info     dsh.PolicyInfo
	standing Standing
	make     func() *policy

	// Guarded by set.mu.
	policy  *policy // nil: freed
	active  int     // decisions under way
	retired bool    // another is in its place, or none
}

func (v *version) Info() dsh.PolicyInfo { return v.info }

// Decide asks this version, whatever the waterfall has become.
func (v *version) Decide(ctx context.Context, q dsh.Question) (dsh.Verdict, error) {
	p, err := v.set.enter(v)
	if err != nil {
		return dsh.Verdict{}, err
	}
	defer v.set.leave(v)
	return p.Decide(ctx, q)
}

// enter counts a decision in. A version that was freed is made again.
func (s *Set) enter(v *version) (*policy, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, unavailable("the policy is closed")
	}
	if v.policy == nil {
		v.policy = v.make()
		s.live[v] = struct{}{}
	}
	v.active++
	return v.policy, nil
}

// leave counts a decision out, and frees a retired version after its last.
func (s *Set) leave(v *version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.active--
	s.freeIfDone(v)
}

// retire takes a version out of use. It is freed after its last decision.
func (s *Set) retire(v *version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v.retired = true
	s.freeIfDone(v)
}

// freeIfDone frees a retired version that nobody asks. s.mu is held; a set that
// is closed frees all by itself.
func (s *Set) freeIfDone(v *version) {
	if !v.retired || v.active > 0 || v.policy == nil || s.closed {
		return
	}
	p := v.policy
	v.policy = nil
	delete(s.live, v)
	s.freeing.Go(func() {
		if err := p.close(); err != nil {
			p.warn(err.Error())
		}
	})
}
