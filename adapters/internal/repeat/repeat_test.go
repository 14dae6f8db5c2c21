package repeat_test

import (
	"encoding/json"
	"testing"

	"github.com/dsh-agent/dsh/adapters/internal/repeat"
)

const mark = `"text":"`

func TestMatch(t *testing.T) {
	var f repeat.Frame
	if _, ok := f.Match([]byte(`{"n":1,"text":"a"}`)); ok {
		t.Error("nothing was learned, and it matches")
	}
	f.Learn([]byte(`{"n":1,"text":"a"}`), mark, "a")
	for event, want := range map[string]string{
		`{"n":1,"text":"b"}`:                 "b",
		`{"n":1,"text":"a long one, 'ok'"}`:  "a long one, 'ok'",
		`{"n":1,"text":""}`:                  "", // nothing: it is for the decoder to say
		`{"n":2,"text":"b"}`:                 "",
		`{"n":1,"text":"b","stop":true}`:     "",
		`{"n":1,"text":"b","text":"c"}`:      "",
		`{"n":1,"text":"b\n"}`:               "",
		`{"n":1,"text":"ö"}`:                 "",
		`{"n":1,"text":"b}`:                  "",
		`{"n":1,"text":"b"}}`:                "",
		`{"n":1,"text`:                       "",
		"{\"n\":1,\"text\":\"b\x01\"}":       "",
		`{"n":1,"text":"x","more":{"y":"a"}`: "",
	} {
		if got, ok := f.Match([]byte(event)); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", event, got, ok)
		}
	}
	f.Forget()
	if _, ok := f.Match([]byte(`{"n":1,"text":"b"}`)); ok {
		t.Error("it matches what it has forgotten")
	}
}

func TestLearnsOnlyWhatIsSure(t *testing.T) {
	for event, text := range map[string]string{
		`{"n":1}`:                       "a",
		`{"text":"a","x":{"text":"a"}}`: "a",
		`{"text":"a\n"}`:                "a\n",
		`{"text":"b"}`:                  "a",
		`{"text":""}`:                   "",
	} {
		var f repeat.Frame
		f.Learn([]byte(event), mark, text)
		if _, ok := f.Match([]byte(event)); ok {
			t.Errorf("%s was learned", event)
		}
	}
}

// FuzzMatch holds the short way against the long one.
func FuzzMatch(f *testing.F) {
	f.Add(`{"n":1,"text":"a"}`, `{"n":1,"text":"b"}`)
	f.Add(`{"text":"a","n":1}`, `{"text":"a","text":"b","n":1}`)
	f.Fuzz(func(t *testing.T, first, second string) {
		type event struct {
			N    any    `json:"n"`
			Text string `json:"text"`
		}
		var a, b event
		if json.Unmarshal([]byte(first), &a) != nil {
			return
		}
		var frame repeat.Frame
		frame.Learn([]byte(first), mark, a.Text)
		got, ok := frame.Match([]byte(second))
		if !ok {
			return
		}
		if err := json.Unmarshal([]byte(second), &b); err != nil {
			t.Fatalf("%s matches %s, and is no JSON: %v", second, first, err)
		}
		if b.Text != got {
			t.Fatalf("%s matches %s with %q, and says %q", second, first, got, b.Text)
		}
	})
}
