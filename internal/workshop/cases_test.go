package workshop_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh"
	"github.com/dsh-agent/dsh/guests/sdk"
	"github.com/dsh-agent/dsh/internal/workshop"
)

// spoken is a policy whose answers are the text of its config's "answer", or
// what a host function says.
type spoken struct{ config json.RawMessage }

func (s spoken) Info() dsh.PolicyInfo { return dsh.PolicyInfo{Name: "spoken"} }

func (s spoken) Decide(ctx context.Context, q dsh.Question) (dsh.Verdict, error) {
	var c struct {
		Answer string
		Fault  bool
		Put    bool
	}
	if err := json.Unmarshal(s.config, &c); err != nil {
		return dsh.Verdict{}, err
	}
	if c.Fault {
		return dsh.Verdict{}, &dsh.Fault{Kind: dsh.FaultTrap, Message: "it traps"}
	}
	if c.Put {
		got, err := q.Host.Call(ctx, "state_get", json.RawMessage(`{"scope":"shared","key":"n"}`))
		if err != nil {
			return dsh.Verdict{}, err
		}
		if _, err := q.Host.Call(ctx, "state_put", json.RawMessage(`{"scope":"shared","key":"n","value":{"n":2},"version":1}`)); err != nil {
			return dsh.Verdict{}, err
		}
		if _, err := q.Host.Call(ctx, "emit", json.RawMessage(`{"type":"seen","data":{"was":`+string(got)+`}}`)); err != nil {
			return dsh.Verdict{}, err
		}
	}
	if c.Answer == "" {
		c.Answer = `{"kind":"retry","delayMs":1500,"maxRetries":4,"reason":"` + string(q.Hook) + `"}`
	}
	return dsh.Verdict{Raw: json.RawMessage(c.Answer)}, nil
}

func load(_ context.Context, config json.RawMessage) (workshop.Loaded, error) {
	if strings.Contains(string(config), "bad") {
		return workshop.Loaded{Problems: []string{"bad is bad"}}, nil
	}
	return workshop.Loaded{Policy: spoken{config}}, nil
}

func run(t *testing.T, file string) []workshop.Result {
	t.Helper()
	cases, err := workshop.ParseCases(strings.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	results, err := workshop.Run(t.Context(), load, "spoken", cases)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func TestDifferences(t *testing.T) {
	for line, want := range map[string]string{
		`{"failure":{"code":"SERVER"},"expect":{"kind":"retry","delayMs":1500}}`:                                                                                            "",
		`{"failure":{"code":"SERVER"},"expect":{"delayMs":{"min":1000,"max":1500}}}`:                                                                                        "",
		`{"failure":{"code":"SERVER"},"expect":{"delayMs":{"min":1000,"max":1499}}}`:                                                                                        "delayMs",
		`{"failure":{"code":"SERVER"},"expect":{"kind":"delegate","delayMs":1,"mode":"always"}}`:                                                                            "delayMs kind mode",
		`{"failure":{"code":"SERVER"},"context":{"config":{"fault":true}},"expect":{"kind":"retry"}}`:                                                                       "fault kind",
		`{"failure":{"code":"SERVER"},"context":{"config":{"fault":true}},"expect":{"fault":"trap"}}`:                                                                       "",
		`{"failure":{"code":"SERVER"},"context":{"config":{"answer":"{\"kind\":\"retry\",\"repairs\":[{\"kind\":\"prune\"}]}"}},"expect":{"repairs":[{"kind":"compact"}]}}`: "repairs[0].kind",
		`{"failure":{"code":"SERVER"},"context":{"config":{"bad":1}},"expect":{"kind":"retry"}}`:                                                                            "context.config",
		`{"hook":"check_config","context":{"config":{"bad":1}},"expect":{"problems":["bad is bad"]}}`:                                                                       "",
		`{"hook":"check_config","context":{"config":{}},"expect":{"problems":["bad is bad"]}}`:                                                                              "problems",
		`{"hook":"before_step","expect":{"reason":"before_step"}}`:                                                                                                          "",
		`{"failure":{"code":"SERVER"}}`: " ",
		`{"failure":{"code":"SERVER"},"context":{"config":{"put":true},"state":{"shared":{"n":{"n":1}}}},"expect":{"state":{"shared":{"n":{"n":2}}},"emitted":[{"type":"seen"}]}}`: "",
		`{"failure":{"code":"SERVER"},"context":{"config":{"put":true},"state":{"shared":{"n":{"n":1}}}},"expect":{"state":{"shared":{"n":{"n":3}}}}}`:                             "state.shared.n.n",
		`{"failure":{"code":"SERVER"},"context":{"config":{"put":true},"hostCalls":[{"function":"state_get","answer":7}]},"expect":{"fault":"unavailable"}}`:                       "",
	} {
		var paths []string
		for _, d := range run(t, line)[0].Differences {
			paths = append(paths, d.Path)
		}
		if got := strings.Join(paths, " "); got != strings.TrimSpace(want) || want == " " && paths == nil {
			t.Errorf("%s: the differences are %q, want %q", line, got, want)
		}
	}
}

func TestBadCases(t *testing.T) {
	for line, want := range map[string]string{
		``:         "no cases",
		`nonsense`: "line 1: ",
		`{"failure":{"code":"SERVER"},"expects":{}}`: `unknown field "expects"`,
		`{"expect":{}}`: "needs a failure",
		`{"hook":"before_step","failure":{"code":"X"}}`: "has no failure",
		`{"hook":"warm"}`: "it is recover, before_step or check_config",
		`{"failure":{"code":"SERVER","statuss":1}}`:                                   `"statuss" is an unknown key`,
		`{"failure":{"code":"SERVER"},"context":{"atempt":1}}`:                        `"atempt" is an unknown key; there are`,
		`{"failure":{"code":"SERVER"},"context":{"surface":{"token":1}}}`:             `surface: "token" is an unknown key`,
		`{"failure":{"code":"SERVER"},"context":{"surface":1}}`:                       "surface is an object",
		`{"failure":{"code":"SERVER"},"context":{"config":1}}`:                        "config is an object",
		`{"failure":{"code":"SERVER"},"context":{"retries":-1}}`:                      "retries is below 0",
		`{"failure":{"code":"SERVER"},"context":{"state":{"all":{}}}}`:                `the scope "all"`,
		`{"failure":{"code":"SERVER"},"context":{"hostCalls":[{"function":"emit"}]}}`: "has no answer",
		`{"failure":{"code":"SERVER"},"context":{"failure":{}}}`:                      "beside context",
		`{"failure":{"code":"SERVER"},"expect":{"delay":1}}`:                          `"delay" is an unknown key; of recover there are`,
		`{"hook":"check_config","expect":{"kind":"retry"}}`:                           `of check_config there are problems`,
		`{"failure":{"code":"SERVER"}} {}`:                                            "after the end",
	} {
		_, err := workshop.ParseCases(strings.NewReader(line))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
	for line, want := range map[string]string{
		`{"failure":{"code":"NO_SUCH"},"expect":{}}`:                            "which is none of",
		`{"failure":{"code":"SERVER"},"context":{"attempt":"one"},"expect":{}}`: "attempt cannot be a string",
	} {
		cases, err := workshop.ParseCases(strings.NewReader(line))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := workshop.Run(t.Context(), load, "spoken", cases); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// TestUpdate: what differs is written anew, and what does not keeps its bytes.
func TestUpdate(t *testing.T) {
	const file = "\n" + `{ "failure": {"code":"SERVER"}, "expect": {"kind":"retry"} }` + "\r\n" +
		`{"name":"<b>","failure":{"code":"SERVER"},"expect":{"kind":"delegate"}}` + "\n" + `{"failure":{"code":"SERVER"}}`
	updated, n, err := workshop.Update([]byte(file), run(t, file))
	if err != nil || n != 2 {
		t.Fatal(n, err)
	}
	before, after := strings.SplitAfter(file, "\n"), strings.SplitAfter(string(updated), "\n")
	if len(after) != len(before) || after[0] != before[0] || after[1] != before[1] || !strings.Contains(after[2], `"name":"<b>"`) {
		t.Errorf("%q", after)
	}
	for _, r := range run(t, string(updated)) {
		if len(r.Differences) > 0 {
			t.Errorf("still different: %v", r.Differences)
		}
	}
	if again, n, _ := workshop.Update(updated, run(t, string(updated))); n != 0 || !bytes.Equal(again, updated) {
		t.Error("an update of what is as expected changes something")
	}
}

func TestProjects(t *testing.T) {
	dir := t.TempDir()
	for _, language := range sdk.Languages() {
		p, err := workshop.New(dir, "my-"+language, language)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range []string{"README.md", "cases.jsonl", "manifest.json", "build.sh", "Makefile", ".gitignore"} {
			if !slices.Contains(p.Files, f) {
				t.Errorf("%s has no %s", language, f)
			}
		}
		for _, f := range p.Files {
			text, err := os.ReadFile(filepath.Join(p.Dir, filepath.FromSlash(f)))
			if err != nil || len(text) == 0 || bytes.Contains(text, []byte("{{")) && !strings.Contains(f, "sdk/") {
				t.Errorf("%s: %s: %v: a place holder is left, or nothing is there", language, f, err)
			}
		}
		cases, err := os.Open(filepath.Join(p.Dir, "cases.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := workshop.ParseCases(cases); err != nil {
			t.Error(err)
		}
		cases.Close()
	}
	for _, c := range []struct{ name, language, want string }{
		{"my-go", "go", "nothing is ever written over"},
		{"", "go", "is not a policy's name"}, {"../x", "go", "is not a policy's name"}, {"Up", "go", "is not a policy's name"},
		{"9lives", "go", "the first a letter"}, {"a-", "go", "is not a policy's name"}, {"test", "rust", "a word of the tools"}, {"match", "rust", "a word of the tools"}, {"nul", "c", "a word of the tools"},
		{"x", "cobol", "no kit for the language"}, {"x", "", "go, rust, c, assemblyscript are there"},
	} {
		_, err := workshop.New(dir, c.name, c.language)
		var word *workshop.WordError
		if !errors.As(err, &word) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q in %q: %v, want %q", c.name, c.language, err, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "x")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a project that is refused leaves a folder")
	}
}
