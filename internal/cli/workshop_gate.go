package cli

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A gate is a condition of --fail-if.
type gate struct {
	text     string
	metric   string
	over     bool    // it fails above the value, and else below
	value    float64 // absolute, or against the log
	relative bool    // it is added to the log's figure
	percent  bool    // of the log's figure
}

// gateMetrics are the figures that a gate may name, in the log and with the
// candidate.
func gateMetrics() map[string]func(Simulated) (was, is float64) {
	pair := func(f func(SimulatedSide) float64) func(Simulated) (float64, float64) {
		return func(r Simulated) (float64, float64) { return f(r.Recorded), f(r.Candidate) }
	}
	single := func(f func(Simulated) int) func(Simulated) (float64, float64) {
		return func(r Simulated) (float64, float64) { return 0, float64(f(r)) }
	}
	return map[string]func(Simulated) (float64, float64){
		"requests":    pair(func(s SimulatedSide) float64 { return float64(s.Requests) }),
		"retried":     pair(func(s SimulatedSide) float64 { return float64(s.Retried) }),
		"final":       pair(func(s SimulatedSide) float64 { return float64(s.Final) }),
		"wait":        pair(func(s SimulatedSide) float64 { return s.WaitMs }),
		"tokens":      pair(func(s SimulatedSide) float64 { return float64(s.Tokens) }),
		"lost":        single(func(r Simulated) int { return r.Lost }),
		"changed":     single(func(r Simulated) int { return r.Changed }),
		"faults":      single(func(r Simulated) int { return r.Faults }),
		"unavailable": single(func(r Simulated) int { return r.Unavailable }),
	}
}

// parseGates reads the conditions of --fail-if.
func parseGates(texts []string) ([]gate, error) {
	var gates []gate
	u := &UsageError{}
	form := regexp.MustCompile(`^\s*([a-z]+)\s*([<>])\s*([+-]?)([0-9]+(?:\.[0-9]+)?)(%?)\s*$`)
	for _, text := range texts {
		m := form.FindStringSubmatch(text)
		if m == nil {
			u.Problems = append(u.Problems, fmt.Sprintf("--fail-if %q is no condition: write METRIC>VALUE or METRIC<VALUE, such as requests>+20%% or lost>0", oneLine(text, 60)))
			continue
		}
		if _, ok := gateMetrics()[m[1]]; !ok {
			u.Problems = append(u.Problems, fmt.Sprintf("--fail-if %q: there is no metric %q: there are requests, retried, final, wait, tokens, lost, changed, faults and unavailable", text, m[1]))
			continue
		}
		v, err := strconv.ParseFloat(m[4], 64)
		if err != nil {
			u.Problems = append(u.Problems, fmt.Sprintf("--fail-if %q: %s is no number", text, m[4]))
			continue
		}
		if m[3] == "-" {
			v = -v
		}
		gates = append(gates, gate{strings.TrimSpace(text), m[1], m[2] == ">", v, m[3] != "", m[5] == "%"})
	}
	if len(u.Problems) > 0 {
		return nil, u
	}
	return gates, nil
}

// fails says why the condition holds; "": it does not. A percentage without a
// sign is one of the log's figure, one with a sign a change of it.
func (g gate) fails(r Simulated) string {
	was, is := gateMetrics()[g.metric](r)
	bound := g.value
	switch {
	case g.percent && g.relative:
		bound = was + was*g.value/100
	case g.percent:
		bound = was * g.value / 100
	case g.relative:
		bound = was + g.value
	}
	if g.over && is > bound || !g.over && is < bound {
		return fmt.Sprintf("%s: %s is %s with the candidate and %s in the log, and the bound is %s", g.text, g.metric, figure(is), figure(was), figure(bound))
	}
	return ""
}

func figure(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
