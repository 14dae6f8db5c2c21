package dsh_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dsh-agent/dsh"
)

var noon = time.UnixMilli(1_700_000_000_123)

// session is a small log with one event of most kinds of shape.
func session(t testing.TB) []dsh.Event {
	t.Helper()
	events, err := dsh.Tail{}.SealAll(noon,
		dsh.Draft{Type: dsh.TypeSessionStart, Data: dsh.SessionStart{Schema: dsh.Schema, ID: "s1", Cwd: "/w", Title: "a <b> & \u2028 ü"}},
		dsh.Draft{Type: dsh.TypeTurnStart, Data: dsh.TurnStart{Turn: 1}},
		dsh.Draft{Type: dsh.TypeUserMessage, Data: dsh.UserMessage{ID: "m1", Content: []dsh.Block{dsh.TextBlock("x,\"hash\":\"0123456789abcdef0123456789abcdef\"}")}}, Surface: &dsh.SurfaceOp{Op: dsh.SurfaceAppend}},
		dsh.Draft{Type: dsh.TypeRetry, Data: dsh.Retry{RetryID: "r", DelayMs: 547.7, Failure: dsh.Failure{Code: dsh.CodeServer, Message: "m"}}},
		dsh.Draft{Type: dsh.TypeToolResult, Data: dsh.ToolResultEvent{CallID: "c", Content: []dsh.Block{}}, Surface: &dsh.SurfaceOp{Op: dsh.SurfaceReplace, From: 3, To: 3}},
		dsh.Draft{Type: "later/unknown", Data: json.RawMessage(`{"b":1.50,"a":[1e3,"<>"]}`)},
	)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func TestSeal(t *testing.T) {
	events := session(t)
	hash := ""
	for i, e := range events {
		line := string(e.Line())
		head, _, ok := strings.Cut(line, fmt.Sprintf(`,"hash":"%s"}`, e.Hash))
		if !ok || !json.Valid(e.Line()) || strings.ContainsAny(line, "\n\r") {
			t.Fatalf("%s", line)
		}
		sum := sha256.Sum256([]byte(hash + head))
		if hash = hex.EncodeToString(sum[:16]); e.Hash != hash {
			t.Errorf("event %d: hash %s, want %s", i+1, e.Hash, hash)
		}
		if e.Seq != uint64(i+1) || e.At != noon.UnixMilli() || !e.Time().Equal(noon) || e.Tail() != (dsh.Tail{Seq: e.Seq, Hash: hash}) {
			t.Errorf("%+v", e)
		}
		back, err := dsh.ParseEvent(e.Line())
		if err != nil || !reflect.DeepEqual(back, e) {
			t.Errorf("%s is read as %+v, %v", line, back, err)
		}
	}
	for i, want := range map[int]string{
		0: `{"seq":1,"at":1700000000123,"type":"session/start","data":{"schema":1,"id":"s1","cwd":"/w","title":"a <b> & \u2028 ü"},"hash":"`,
		2: `{"seq":3,"at":1700000000123,"type":"user/message","data":{"id":"m1","content":[{"type":"text","text":"x,\"hash\":\"0123456789abcdef0123456789abcdef\"}"}]},"surface":{"op":"append"},"hash":"`,
		4: `{"seq":5,"at":1700000000123,"type":"tool/result","data":{"turn":0,"step":0,"callId":"c","content":[],"isError":false},"surface":{"op":"replace","from":3,"to":3},"hash":"`,
		5: `{"seq":6,"at":1700000000123,"type":"later/unknown","data":{"b":1.50,"a":[1e3,"<>"]},"hash":"`,
	} {
		if got := string(events[i].Line()); !strings.HasPrefix(got, want) {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

func TestSealRefuses(t *testing.T) {
	for _, d := range []dsh.Draft{
		{Type: "t"}, {Type: "t", Data: []int{1}}, {Type: "t", Data: "x"}, {Type: "t", Data: json.RawMessage(`{`)}, {Data: struct{}{}},
		{Type: dsh.TypeAssistantChunk, Data: dsh.AssistantChunk{Chunk: dsh.Chunk{Type: dsh.ChunkFinish}}}, {Type: "t", Data: func() {}},
	} {
		if e, err := (dsh.Tail{}).Seal(noon, d); err == nil {
			t.Errorf("%+v is sealed: %s", d, e.Line())
		}
	}
	if _, err := (dsh.Tail{}).SealAll(noon, dsh.Draft{Type: "t", Data: struct{}{}}, dsh.Draft{}); err == nil {
		t.Error("SealAll seals what Seal does not")
	}
}

func TestDecode(t *testing.T) {
	e := session(t)[3]
	var r dsh.Retry
	if err := e.Decode(&r); err != nil || r.RetryID != "r" || r.Failure.Code != dsh.CodeServer {
		t.Errorf("%+v %v", r, err)
	}
	var wrong struct{ RetryID int }
	if err := e.Decode(&wrong); err == nil || !strings.Contains(err.Error(), "event 4 (llm/retry)") {
		t.Errorf("%v", err)
	}
}

// TestUnknownSurvives holds that a line of a newer version is kept byte for
// byte and still proven.
func TestUnknownSurvives(t *testing.T) {
	head := `{"trace":{"id":"x"}, "seq":1,"at":5,"type":"of/tomorrow" ,"data": {"n": 1.50, "u":"\u00fc"},"surface":{"op":"fold","by":7},"zone":[ ]`
	sum := sha256.Sum256([]byte(head))
	line := head + `,"hash":"` + hex.EncodeToString(sum[:16]) + `"}`
	e, err := dsh.ParseEvent([]byte(" " + line + "\r\n"))
	if err != nil {
		t.Fatal(err)
	}
	if string(e.Line()) != line || string(e.Data) != `{"n": 1.50, "u":"\u00fc"}` || e.Type != "of/tomorrow" || e.Surface.Op != "fold" {
		t.Errorf("%+v", e)
	}
	if err := (dsh.Tail{}).Check(e); err != nil {
		t.Error(err)
	}
	next, err := e.Tail().Seal(noon, dsh.Draft{Type: "t", Data: struct{}{}})
	if err != nil || e.Tail().Check(next) != nil {
		t.Errorf("%v %v", err, e.Tail().Check(next))
	}
}

func TestParseEventRefuses(t *testing.T) {
	hash := `,"hash":"0123456789abcdef0123456789abcdef"}`
	for line, want := range map[string]string{
		``:                                      "does not end in a hash",
		`{}`:                                    "does not end in a hash",
		`{"seq":1,"at":1,"type":"t","data":{}}`: "does not end in a hash",
		`{"seq":1,"at":1,"type":"t","data":{},"hash":"0123"}`:                       "does not end in a hash",
		`{"seq":1,"type":"t","data":{},"hash":"0123456789abcdef0123456789abcdeg"}`:  "not hex",
		`{"seq":1,"type":"t","data":{},"hash":"0123456789abcdef0123456789abcdef" }`: "does not end in a hash",
		`{"hash":"0123456789abcdef0123456789abcdef"}`:                               "does not end in a hash",
		`{"type":"t","data":{}` + hash:                                              "no seq",
		`{"seq":0,"type":"t","data":{}` + hash:                                      "no seq",
		`{"seq":-1,"type":"t","data":{}` + hash:                                     "not an event",
		`{"seq":1.5,"type":"t","data":{}` + hash:                                    "not an event",
		`{"seq":1,"data":{}` + hash:                                                 "event 1: no type",
		`{"seq":1,"type":"t"` + hash:                                                "event 1: data is no object",
		`{"seq":1,"type":"t","data":[]` + hash:                                      "event 1: data is no object",
		`{"seq":1,"type":"t","data":null` + hash:                                    "event 1: data is no object",
		`[{"seq":1,"type":"t","data":{}` + hash:                                     "not an event",
		`{"seq":1,"type":"t","data":{` + hash:                                       "not an event",
	} {
		if _, err := dsh.ParseEvent([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", line, err, want)
		}
	}
}

// proven reads lines as a log does, and says at which one it stops.
func proven(lines [][]byte) int {
	var tail dsh.Tail
	for i, line := range lines {
		e, err := dsh.ParseEvent(line)
		if err != nil || tail.Check(e) != nil {
			return i
		}
		tail = e.Tail()
	}
	return len(lines)
}

// TestEveryByteCounts changes each byte of each line of a log to each other
// value: every one is found, at its line.
func TestEveryByteCounts(t *testing.T) {
	var tail dsh.Tail
	for _, e := range session(t) {
		line := bytes.Clone(e.Line())
		for k, was := range line {
			for b := range 256 {
				if line[k] = byte(b); line[k] == was {
					continue
				}
				if got, err := dsh.ParseEvent(line); err == nil && tail.Check(got) == nil {
					t.Errorf("event %d: byte %d can be changed from %#x to %#x", e.Seq, k, was, b)
				}
			}
			line[k] = was
		}
		tail = e.Tail()
	}
}

// TestChainCounts holds that lines that are left out, doubled, swapped, cut or
// taken from another log are found.
func TestChainCounts(t *testing.T) {
	var lines [][]byte
	for _, e := range session(t) {
		lines = append(lines, e.Line())
	}
	other, err := dsh.Tail{}.SealAll(noon, dsh.Draft{Type: "a", Data: struct{}{}}, dsh.Draft{Type: "b", Data: struct{}{}})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		lines [][]byte
		want  int
	}{
		"left out":    {[][]byte{lines[0], lines[2]}, 1},
		"first gone":  {lines[1:], 0},
		"doubled":     {[][]byte{lines[0], lines[0]}, 1},
		"swapped":     {[][]byte{lines[0], lines[2], lines[1]}, 1},
		"cut":         {[][]byte{lines[0], lines[1][:len(lines[1])-1]}, 1},
		"of another":  {[][]byte{lines[0], other[1].Line()}, 1},
		"space in it": {[][]byte{lines[0], bytes.Replace(lines[1], []byte(`,"at"`), []byte(`, "at"`), 1)}, 1},
	} {
		if got := proven(c.lines); got != c.want {
			t.Errorf("%s: proven to %d, want %d", name, got, c.want)
		}
	}
}

func TestCheckError(t *testing.T) {
	events := session(t)
	for _, c := range []struct {
		tail   dsh.Tail
		e      dsh.Event
		seq    uint64
		reason string
	}{
		{dsh.Tail{}, events[1], 1, "event 2 follows event 0"},
		{events[1].Tail(), events[1], 3, "event 2 follows event 2"},
		{dsh.Tail{Seq: 1, Hash: "other"}, events[1], 2, "hash " + events[1].Hash + ", want "},
		{dsh.Tail{}, dsh.Event{Seq: 1}, 1, "does not end in a hash"},
	} {
		var d *dsh.DamageError
		if err := c.tail.Check(c.e); !errors.As(err, &d) || d.Seq != c.seq || !strings.Contains(d.Reason, c.reason) || d.Session != "" {
			t.Errorf("%v, want %d %q", err, c.seq, c.reason)
		}
	}
}

func TestRelaxed(t *testing.T) {
	if !dsh.TypeAssistantChunk.Relaxed() {
		t.Error("chunks are durable")
	}
	for _, typ := range []dsh.EventType{dsh.TypeRetry, dsh.TypeAttemptEnd, dsh.TypeToolCall, dsh.TypeTurnEnd, "", "of/tomorrow", "assistant/chunks"} {
		if typ.Relaxed() {
			t.Errorf("%s is relaxed", typ)
		}
	}
}

// TestEventTypesAreTheContracts holds the names against the payloads' source,
// so that one is not renamed by accident: they are in every log there is.
func TestEventTypesAreTheContracts(t *testing.T) {
	source, err := os.ReadFile("payload.go")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range regexp.MustCompile(`EventType = "([^"]+)"`).FindAllStringSubmatch(string(source), -1) {
		got = append(got, m[1])
	}
	want := strings.Fields(`session/start turn/start user/message step/start request/header attempt/start assistant/chunk
		attempt/end policy/decision policy/fault policy/refused policy/state policies/changed llm/retry llm/retry-started
		llm/retry-cancelled compaction/start compaction/summary compaction/end assistant/message tool/call tool/result
		step/end turn/end`)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}

func FuzzParseEvent(f *testing.F) {
	for _, e := range session(f) {
		f.Add(e.Line())
	}
	f.Add([]byte(`{"SEQ":1,"seq":2,"Type":"x","data":{},"hash":"0123456789ABCDEF0123456789abcdef"}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		e, err := dsh.ParseEvent(line)
		if err != nil {
			return
		}
		if !bytes.Contains(line, e.Line()) || !json.Valid(e.Line()) || e.Seq == 0 || e.Type == "" || len(e.Hash) != 32 {
			t.Fatalf("%+v", e)
		}
		again, err := dsh.ParseEvent(e.Line())
		if err != nil || !reflect.DeepEqual(again, e) {
			t.Fatalf("%+v, then %+v, %v", e, again, err)
		}
		if err := (dsh.Tail{Seq: e.Seq}).Check(e); err == nil {
			t.Error("it follows itself")
		}
	})
}

func FuzzSeal(f *testing.F) {
	f.Add("s1", "title <>&\u2028", int64(5), "data", uint64(3))
	f.Add("", "\xff\x00", int64(-1), `,"hash":"`, uint64(0))
	f.Fuzz(func(t *testing.T, id, text string, at int64, typ string, from uint64) {
		start, err := dsh.Tail{}.Seal(time.UnixMilli(at), dsh.Draft{Type: dsh.TypeSessionStart, Data: dsh.SessionStart{ID: dsh.SessionID(id), Title: text}})
		if err != nil {
			t.Fatal(err)
		}
		e, err := start.Tail().Seal(time.UnixMilli(at), dsh.Draft{Type: dsh.EventType("x" + typ), Data: dsh.UserMessage{ID: text}, Surface: &dsh.SurfaceOp{Op: text, From: from}})
		if err != nil {
			t.Fatal(err)
		}
		back, err := dsh.ParseEvent(e.Line())
		if err != nil || back.Seq != 2 || back.At != at || back.Hash != e.Hash || !bytes.Equal(back.Data, e.Data) || bytes.ContainsAny(e.Line(), "\n\r") {
			t.Fatalf("%s: %+v %v", e.Line(), back, err)
		}
		if err := start.Tail().Check(back); err != nil {
			t.Error(err)
		}
	})
}
