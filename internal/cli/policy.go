package cli

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dsh-agent/dsh"
)

func (a *app) policyCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List the policies in the order in which they are asked", Args: between(0, 0, "no argument"),
		RunE: func(c *cobra.Command, _ []string) error { return a.listPolicies(c.Context()) },
	}
	inspect := &cobra.Command{
		Use: "inspect FILE", Short: "Say what a module is, before it is trusted", Args: between(1, 1, "one file, or builtin:NAME"),
		RunE: func(c *cobra.Command, args []string) error { return a.inspect(c.Context(), args[0]) },
	}
	c := a.group("policy", "List, inspect and change the policies that decide on failures", append(append(a.changeCommands(), list, inspect, a.explainCommand(), a.replayCommand(), a.signCommand(), a.pushCommand()), a.workshopCommands()...)...)
	return c
}

// A listedPolicy is one line of `dsh policy list --json`.
type listedPolicy struct {
	Position  int        `json:"position"` // 0: it is refused, and not asked
	Name      string     `json:"name"`
	Version   string     `json:"version"`
	Digest    string     `json:"digest"`
	Source    string     `json:"source"`
	Origin    string     `json:"origin"` // what puts it into the waterfall: config or folder
	Trust     string     `json:"trust"`  // built-in, signed, pinned or accepted; "": nobody vouches for it
	Signer    string     `json:"signer"`
	Engine    string     `json:"engine"`
	ABI       string     `json:"abi"`
	Granted   []string   `json:"granted"`
	Asked     []string   `json:"asked"`
	Calls     *int       `json:"calls"` // in the log, of this digest; null: the log could not be read
	Faults    *int       `json:"faults"`
	LastFault *lastFault `json:"lastFault"` // null: it has never failed
	State     string     `json:"state"`
}

// A lastFault is the last time that a module gave no decision.
type lastFault struct {
	At      int64         `json:"at"` // Unix ms
	Session dsh.SessionID `json:"session"`
	Kind    dsh.FaultKind `json:"kind"`
	Message string        `json:"message"`
}

func (a *app) listPolicies(ctx context.Context) error {
	policies, err := a.program.Policies(ctx, a.common)
	if err != nil {
		return err
	}
	if len(policies) == 0 {
		a.progress(plain, "no policy is configured: every failure is final")
		return nil
	}
	uses, err := a.policyUses(ctx)
	if err != nil {
		if stopped(err) && ctx.Err() != nil {
			return err
		}
		a.progress(yellow, "dsh: calls and faults are not counted: "+oneLine(err.Error(), longMessage))
	}
	var rows table
	rows.add("", "NAME", "VERSION", "DIGEST", "SOURCE", "SIGNER", "ABI", "GRANTED", "ASKED FOR", "CALLS", "FAULTS", "LAST FAULT", "STATE")
	position := 0
	for _, p := range policies {
		l := listedPolicy{
			Name: p.Name, Version: p.Version, Digest: p.Digest, Source: p.Source, Origin: p.Origin, Trust: p.Trust, Signer: p.Signer,
			Engine: p.Engine, ABI: p.ABI, Granted: listed(p.Granted), Asked: listed(p.Asked), State: p.State,
		}
		if !p.Refused {
			position++
			l.Position = position
		}
		if uses != nil {
			u := uses[p.Digest]
			l.Calls, l.Faults, l.LastFault = &u.calls, &u.faults, u.last
			if u.tripped != "" {
				l.State += "; tripped in session " + string(u.tripped)
			}
		}
		if !a.common.JSON {
			rows.add(l.row()...)
		} else if err := writeJSON(a.out, l); err != nil {
			return err
		}
	}
	if a.common.JSON {
		return nil
	}
	return rows.write(a.out)
}

func (l listedPolicy) row() []string {
	position, last := "-", "-"
	if l.Position > 0 {
		position = strconv.Itoa(l.Position)
	}
	if f := l.LastFault; f != nil {
		last = clock(time.UnixMilli(f.At), time.Now()) + " " + string(f.Kind)
	}
	signer := l.Signer
	if signer == "" && l.Trust != "signed" {
		signer = l.Trust
	}
	return []string{position, oneLine(l.Name, 40), orDash(oneLine(l.Version, 20)), orDash(fmt.Sprintf("%.12s", l.Digest)),
		oneLine(l.Source, 60), orDash(oneLine(signer, 40)), orDash(oneLine(l.ABI, 30)), names(l.Granted), names(l.Asked),
		number(l.Calls), number(l.Faults), last, oneLine(l.State, 200)}
}

func names(list []string) string { return orDash(oneLine(strings.Join(list, ","), 80)) }

func number(n *int) string {
	if n == nil {
		return "-"
	}
	return strconv.Itoa(*n)
}

// A use is how often a module was asked, and gave no decision.
type use struct {
	calls, faults int
	last          *lastFault
	tripped       dsh.SessionID // that has not asked it since; "": none
}

// policyUses counts in the log, by digest. A session without a failure has
// asked nobody and is not read.
func (a *app) policyUses(ctx context.Context) (map[string]use, error) {
	opened, err := a.program.Log(ctx, a.common)
	if err != nil {
		return nil, err
	}
	log := markLog(opened)
	uses := map[string]use{}
	err = countUses(ctx, log, uses)
	if closed := log.Close(); err == nil {
		err = closed
	}
	return uses, err
}

func countUses(ctx context.Context, log dsh.Log, uses map[string]use) error {
	var ids []dsh.SessionID
	for h, err := range log.Heads(ctx) {
		if err != nil {
			return err // counts that are not whole would mislead
		}
		if h.LastFailure != "" {
			ids = append(ids, h.ID)
		}
	}
	for _, id := range ids {
		for e, err := range log.Read(ctx, id, 0) {
			if err != nil {
				return err
			}
			if err := countUse(id, e, uses); err != nil {
				return err
			}
		}
	}
	return nil
}

// countUse counts one event in. A file that was not taken in was not asked.
func countUse(id dsh.SessionID, e dsh.Event, uses map[string]use) error {
	if e.Type == dsh.TypePolicyRefused {
		var d dsh.PolicyRefused
		if err := e.Decode(&d); err != nil || d.Rule != dsh.RuleTripped {
			return err
		}
		u := uses[d.Digest]
		u.tripped = id
		uses[d.Digest] = u
		return nil
	}
	if e.Type != dsh.TypePolicyDecision && e.Type != dsh.TypePolicyFault {
		return nil
	}
	var d dsh.PolicyFault // what both have in common, and more
	if err := e.Decode(&d); err != nil || d.Hook == dsh.HookCheckConfig {
		return err
	}
	u := uses[d.Digest]
	u.calls++
	if u.tripped == id {
		u.tripped = ""
	}
	if e.Type == dsh.TypePolicyFault {
		u.faults++
		if u.last == nil || e.At >= u.last.At {
			u.last = &lastFault{e.At, id, d.Kind, d.Message}
		}
	}
	uses[d.Digest] = u
	return nil
}

func (a *app) inspect(ctx context.Context, file string) error {
	m, err := a.program.Inspect(ctx, a.common, file)
	if err != nil {
		return err
	}
	m.Asks, m.Hooks, m.Problems = listed(m.Asks), listed(m.Hooks), listed(m.Problems)
	m.Exports, m.Imports = listed(m.Exports), listed(m.Imports)
	if a.common.JSON {
		return writeJSON(a.out, m)
	}
	var b strings.Builder
	fact := func(name, value string) { fmt.Fprintf(&b, "%-8s %s\n", name, oneLine(value, 2000)) }
	fact("file", m.File)
	fact("size", fmt.Sprintf("%d bytes", m.Size))
	fact("sha256", m.Digest)
	for _, f := range [][2]string{{"name", m.Name}, {"version", m.Version}, {"about", m.Description}, {"abi", m.ABI}} {
		if f[1] != "" {
			fact(f[0], f[1])
		}
	}
	if s := m.Signature; s != nil {
		fact("signed", signatureText(*s))
	}
	fact("asks for", orDash(strings.Join(m.Asks, ", ")))
	fact("hooks", orDash(strings.Join(m.Hooks, ", ")))
	fact("holds", fmt.Sprintf("%s, and %d KiB of memory to begin with", count(m.Functions, "function", "functions"), m.MemoryPages*64))
	fact("exports", orDash(strings.Join(m.Exports, ", ")))
	fact("imports", orDash(strings.Join(m.Imports, ", ")))
	if len(m.Problems) == 0 {
		fact("verdict", "it holds to the contract of guests")
	}
	for _, p := range m.Problems {
		fact("problem", p)
	}
	_, err = io.WriteString(a.out, b.String())
	return err
}

// signatureText is a module's signature in words.
func signatureText(s ModuleSignature) string {
	text := strings.TrimSpace("as " + s.Name + " " + s.Version)
	switch {
	case s.Good == nil:
		return text + " by key " + s.Key + ", which is not listed"
	case !*s.Good:
		return "the signature is not good: it says " + text + " by key " + s.Key
	}
	return text + " by key " + s.Key + ", which is listed"
}
