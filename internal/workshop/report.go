package workshop

import (
	"maps"
	"slices"

	"github.com/dsh-agent/dsh"
)

// A Side is what failures came to, in the log or with the candidate.
type Side struct {
	Failures int     `json:"failures"`
	Retried  int     `json:"retried"`  // of them, those that were answered with a retry
	Final    int     `json:"final"`    // and those that ended what they happened in
	Requests int     `json:"requests"` // sent; of a code, those that were sent again after it
	WaitMs   float64 `json:"waitMs"`   // of retries that were sent
	Tokens   int64   `json:"tokens"`   // sent again, estimated
}

// A Line compares both sides: in all, of a code or of a provider.
type Line struct {
	Key       string `json:"key,omitempty"`
	Recorded  Side   `json:"recorded"`
	Candidate Side   `json:"candidate"`
}

// A Report is what a simulation came to.
type Report struct {
	Total     Line
	Codes     map[string]*Line
	Providers map[string]*Line

	Sessions int
	Asked    int // decisions of the candidate
	Changed  int // failures that are answered otherwise, or after another delay
	Lost     int // turns that had an answer in the log, and end before with the candidate
	Skipped  int // failures that the candidate does not meet: it had ended the turn before

	Beyond    Side // of the candidate's side, what the log knows nothing of
	Unbounded int  // chains that it would not have ended in 50 requests
	Unknown   int  // chains that it goes on with after a repair: no further
	Faults    int
	Refused   int // retries of it that the host would refuse

	Rebuilt     int // inputs that the log does not hold, made of what it tells
	Unasked     int // answers of other policies that the log does not hold, taken to be delegates
	Unavailable int // host calls that were refused
}

func newReport() *Report { return &Report{Codes: map[string]*Line{}, Providers: map[string]*Line{}} }

func line(lines map[string]*Line, key string) *Line {
	l := lines[key]
	if l == nil {
		l = &Line{Key: key}
		lines[key] = l
	}
	return l
}

// recorded counts a failure in as the log has it.
func (r *Report) recorded(a *attempt, o Outcome) {
	code := line(r.Codes, string(a.failure.Code))
	for _, s := range []*Side{&r.Total.Recorded, &code.Recorded, &line(r.Providers, a.Provider).Recorded} {
		s.count(o, a, a.started)
	}
	if a.started {
		code.Recorded.Requests++
	}
}

// candidate counts a failure in as the candidate has it. Where the log goes no
// further, nothing that it wants is sent.
func (r *Report) candidate(a *attempt, o Outcome, on bool) {
	sent := on && o.Answer == AnswerRetry
	code := line(r.Codes, string(a.failure.Code))
	for _, s := range []*Side{&r.Total.Candidate, &code.Candidate, &line(r.Providers, a.Provider).Candidate} {
		s.count(o, a, sent)
	}
	if sent {
		code.Candidate.Requests++
	}
}

// sent counts a request of the log, resent one that the candidate's side has,
// too. Those of codes are counted with the retries.
func (r *Report) sent(a *attempt) {
	r.Total.Recorded.Requests++
	line(r.Providers, a.Provider).Recorded.Requests++
}

func (r *Report) resent(a *attempt) {
	r.Total.Candidate.Requests++
	line(r.Providers, a.Provider).Candidate.Requests++
}

// count counts a failure in, and its wait if the request was sent again.
func (s *Side) count(o Outcome, a *attempt, sent bool) {
	s.Failures++
	switch o.Answer {
	case AnswerRetry:
		s.Retried++
	case AnswerFinal:
		s.Final++
	}
	if sent {
		s.WaitMs += o.DelayMs
		s.Tokens += tokens(a.RequestBytes)
	}
}

// beyond counts a request that is sent behind the end of the log.
func (r *Report) beyond(a *attempt, o Outcome) {
	r.Total.Candidate.Requests++
	line(r.Providers, a.Provider).Candidate.Requests++
	r.Beyond.Requests++
	r.Beyond.WaitMs += o.DelayMs
	r.Beyond.Tokens += tokens(a.RequestBytes)
}

func (s *Side) add(o Side) {
	s.Failures += o.Failures
	s.Retried += o.Retried
	s.Final += o.Final
	s.Requests += o.Requests
	s.WaitMs += o.WaitMs
	s.Tokens += o.Tokens
}

func (l *Line) add(o *Line) {
	l.Recorded.add(o.Recorded)
	l.Candidate.add(o.Candidate)
}

// add counts another report in.
func (r *Report) add(o *Report) {
	r.Total.add(&o.Total)
	for k, l := range o.Codes {
		line(r.Codes, k).add(l)
	}
	for k, l := range o.Providers {
		line(r.Providers, k).add(l)
	}
	r.Beyond.add(o.Beyond)
	for _, n := range []struct{ to, from *int }{
		{&r.Sessions, &o.Sessions}, {&r.Asked, &o.Asked}, {&r.Changed, &o.Changed}, {&r.Lost, &o.Lost}, {&r.Skipped, &o.Skipped},
		{&r.Unbounded, &o.Unbounded}, {&r.Unknown, &o.Unknown}, {&r.Faults, &o.Faults}, {&r.Refused, &o.Refused},
		{&r.Rebuilt, &o.Rebuilt}, {&r.Unasked, &o.Unasked}, {&r.Unavailable, &o.Unavailable},
	} {
		*n.to += *n.from
	}
}

// Sorted are lines by their keys.
func Sorted(lines map[string]*Line) []Line {
	var all []Line
	for _, k := range slices.Sorted(maps.Keys(lines)) {
		all = append(all, *lines[k])
	}
	return all
}

var _ dsh.Host = (*recordedHost)(nil)
