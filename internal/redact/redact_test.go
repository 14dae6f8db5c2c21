package redact_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dsh-agent/dsh/internal/redact"
)

func compiled(t testing.TB, patterns ...string) redact.Patterns {
	t.Helper()
	p, err := redact.Compile(patterns)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestJSON(t *testing.T) {
	p := compiled(t, `sk-[a-z0-9]{4,}`, `(?i)password=\S+`)
	for _, k := range []struct{ name, in, want string }{
		{"nothing to take", `{"a":[1,2.50,"x\u00e9"],"b":{}}`, `{"a":[1,2.50,"x\u00e9"],"b":{}}`},
		{"a text", `{"text":"use sk-abcd99 now"}`, `{"text":"use [redacted] now"}`},
		{"escaped", `{"text":"use \u0073k-abcd\n<é>"}`, `{"text":"use [redacted]\n<é>"}`},
		{"in an array", `["sk-abcd",["sk-bcde",{"x":"sk-cdef"}],"fine"]`, `["[redacted]",["[redacted]",{"x":"[redacted]"}],"fine"]`},
		{"JSON in a text", `{"arguments":"{\"k\":\"sk-abcd\"}"}`, `{"arguments":"{\"k\":\"[redacted]\"}"}`},
		{"several", `{"a":"sk-aaaa PASSWORD=x sk-bbbb","n":1e3}`, `{"a":"[redacted] [redacted] [redacted]","n":1e3}`},
		{"a name", `{"sk-abcd":"x"}`, `{"sk-abcd":"x"}`},
		{"what refers", `{"callId":"sk-abcd","x":{"id":"sk-abcd","text":"sk-abcd"},"y":"sk-abcd"}`, `{"callId":"sk-abcd","x":{"id":"sk-abcd","text":"[redacted]"},"y":"[redacted]"}`},
		{"after a container", `{"id":["sk-abcd"],"a":{"id":"x"},"b":["sk-abcd"]}`, `{"id":["sk-abcd"],"a":{"id":"x"},"b":["[redacted]"]}`},
		{"spaces", `{ "text" : "sk-abcd" , "id" : "sk-abcd" }`, `{ "text" : "[redacted]" , "id" : "sk-abcd" }`},
		{"a text alone", `"sk-abcd"`, `"[redacted]"`},
		{"no JSON", `{"text":"sk-abcd`, `{"text":"sk-abcd`},
		{"a bracket too many", `}"sk-abcd"`, `}"sk-abcd"`},
	} {
		t.Run(k.name, func(t *testing.T) {
			if got := string(p.JSON([]byte(k.in))); got != k.want {
				t.Errorf("got  %s\nwant %s", got, k.want)
			}
		})
	}
	if got := string(redact.Patterns{}.JSON([]byte(`"sk-abcd"`))); got != `"sk-abcd"` {
		t.Errorf("no pattern: %s", got)
	}
}

func TestCompile(t *testing.T) {
	for _, bad := range []string{"(", "x*", ""} {
		if _, err := redact.Compile([]string{"good", bad}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// FuzzJSON holds that JSON stays JSON, and that nothing that matches is left in
// its texts.
func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"a":["sk-1234",{"id":"sk-1234"}],"sk-1234":null}`))
	f.Add([]byte(`"\"sk-1234\\"`))
	p := compiled(f, `sk-[0-9]{4}`)
	f.Fuzz(func(t *testing.T, in []byte) {
		var before any
		if json.Unmarshal(in, &before) != nil {
			p.JSON(in)
			return
		}
		out := p.JSON(in)
		var after any
		if err := json.Unmarshal(out, &after); err != nil {
			t.Fatalf("%s became %s: %v", in, out, err)
		}
		if s, ok := after.(string); ok && strings.Contains(s, "sk-1234") {
			t.Errorf("%s is left in %s", s, out)
		}
	})
}
