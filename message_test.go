package dsh_test

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/dsh-agent/dsh"
)

func TestBlockJSON(t *testing.T) {
	for _, c := range []struct {
		b    dsh.Block
		want string
	}{
		{dsh.TextBlock("a<b>&\u2028\n"), `{"type":"text","text":"a<b>&\u2028\n"}`},
		{dsh.TextBlock(""), `{"type":"text","text":""}`},
		{dsh.Block{Type: dsh.BlockReasoning, Text: "hm"}, `{"type":"reasoning","text":"hm"}`},
		{dsh.Block{Type: dsh.BlockReasoning, Text: "hm", Opaque: json.RawMessage(`{"sig":"<x>","n":1.50}`)}, `{"type":"reasoning","text":"hm","opaque":{"sig":"<x>","n":1.50}}`},
		{dsh.Block{Type: dsh.BlockToolCall, ID: "c1", Name: "read", Arguments: `{"path": "a`}, `{"type":"tool-call","id":"c1","name":"read","arguments":"{\"path\": \"a"}`},
		{dsh.Block{Type: dsh.BlockToolCall}, `{"type":"tool-call","id":"","name":"","arguments":""}`},
		{dsh.Block{Type: dsh.BlockToolResult, CallID: "c1", Content: []dsh.Block{dsh.TextBlock("x")}, IsError: true}, `{"type":"tool-result","callId":"c1","content":[{"type":"text","text":"x"}],"isError":true}`},
		{dsh.Block{Type: dsh.BlockToolResult, CallID: "c1", Content: []dsh.Block{}}, `{"type":"tool-result","callId":"c1","content":[],"isError":false}`},
		{dsh.Block{Type: dsh.BlockImage, MediaType: "image/png", Data: []byte{0, 255, 62}}, `{"type":"image","mediaType":"image/png","data":"AP8+"}`},
		{dsh.Block{Type: dsh.BlockImage, MediaType: "image/png", Data: []byte{}}, `{"type":"image","mediaType":"image/png","data":""}`},
	} {
		got, err := dsh.JSON(c.b)
		if err != nil || string(got) != c.want {
			t.Errorf("%+v: %s %v, want %s", c.b, got, err, c.want)
		}
		var back dsh.Block
		if err := json.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back, c.b) {
			t.Errorf("%s is read as %+v %v", got, back, err)
		}
	}
}

// TestBlockJSONLeavesOut holds that fields of other types do not show, and
// that what is missing is not null.
func TestBlockJSONLeavesOut(t *testing.T) {
	all := dsh.Block{Text: "t", Opaque: json.RawMessage(`1`), ID: "i", Name: "n", Arguments: "a", CallID: "c", IsError: true, MediaType: "m", Data: []byte("d")}
	for typ, want := range map[dsh.BlockType]string{
		dsh.BlockText:       `{"type":"text","text":"t"}`,
		dsh.BlockToolResult: `{"type":"tool-result","callId":"c","content":[],"isError":true}`,
		dsh.BlockImage:      `{"type":"image","mediaType":"m","data":"ZA=="}`,
	} {
		all.Type = typ
		if got, err := dsh.JSON(all); err != nil || string(got) != want {
			t.Errorf("%s: %s %v", typ, got, err)
		}
	}
	if got, err := dsh.JSON(dsh.Block{Type: dsh.BlockImage}); err != nil || string(got) != `{"type":"image","mediaType":"","data":""}` {
		t.Errorf("%s %v", got, err)
	}
	for _, typ := range []dsh.BlockType{"", "video"} {
		if got, err := dsh.JSON(dsh.Block{Type: typ}); err == nil {
			t.Errorf("type %q is written: %s", typ, got)
		}
	}
	var b dsh.Block
	if err := json.Unmarshal([]byte(`{"type":"text","text":"t","cache":{"ttl":5}}`), &b); err != nil || b.Text != "t" {
		t.Errorf("unknown fields: %+v %v", b, err)
	}
}

func TestText(t *testing.T) {
	content := []dsh.Block{
		dsh.TextBlock("a"), {Type: dsh.BlockReasoning, Text: "no"}, {Type: dsh.BlockToolCall, ID: "1"}, dsh.TextBlock("b"), {Type: dsh.BlockToolCall, ID: "2"},
	}
	if got := (dsh.Message{Content: content}).Text(); got != "ab" {
		t.Errorf("%q", got)
	}
	calls := dsh.ToolCalls(content)
	if len(calls) != 2 || calls[0].ID != "1" || calls[1].ID != "2" || dsh.ToolCalls(nil) != nil {
		t.Errorf("%+v", calls)
	}
}

func TestChunkJSON(t *testing.T) {
	for _, c := range []struct {
		c    dsh.Chunk
		want string
	}{
		{dsh.Chunk{Type: dsh.ChunkText, Text: "hi"}, `{"type":"text","index":0,"text":"hi"}`},
		{dsh.Chunk{Type: dsh.ChunkText, Index: 3}, `{"type":"text","index":3,"text":""}`},
		{dsh.Chunk{Type: dsh.ChunkReasoning, Index: 1, Text: "hm", Opaque: json.RawMessage(`"sig<"`)}, `{"type":"reasoning","index":1,"text":"hm","opaque":"sig<"}`},
		{dsh.Chunk{Type: dsh.ChunkToolCall, Index: 2, ID: "c", Name: "read", Arguments: `{"a`}, `{"type":"tool-call","index":2,"id":"c","name":"read","arguments":"{\"a"}`},
		{dsh.Chunk{Type: dsh.ChunkToolCall, Index: 2, Arguments: `":1}`}, `{"type":"tool-call","index":2,"arguments":"\":1}"}`},
	} {
		got, err := dsh.JSON(c.c)
		if err != nil || string(got) != c.want {
			t.Errorf("%+v: %s %v, want %s", c.c, got, err, c.want)
		}
		var back dsh.Chunk
		if err := json.Unmarshal(got, &back); err != nil || !reflect.DeepEqual(back, c.c) {
			t.Errorf("%s is read as %+v %v", got, back, err)
		}
	}
	for _, c := range []dsh.Chunk{{}, {Type: dsh.ChunkFinish, Finish: &dsh.Finish{Kind: dsh.FinishStop}}, {Type: "video"}} {
		if got, err := dsh.JSON(c); err == nil {
			t.Errorf("type %q is written: %s", c.Type, got)
		}
	}
}

func TestFinish(t *testing.T) {
	for kind, good := range map[dsh.FinishKind]bool{
		dsh.FinishStop: true, dsh.FinishToolCalls: true, dsh.FinishLength: true,
		dsh.FinishError: false, dsh.FinishAborted: false, dsh.FinishInterrupted: false, "": false,
	} {
		if kind.Good() != good {
			t.Errorf("%q: good is %v", kind, kind.Good())
		}
	}
	f := dsh.Finish{Kind: dsh.FinishError, Failure: &dsh.Failure{Code: dsh.CodeServer, Message: "m"}, Usage: &dsh.Usage{InputTokens: 1}}
	if got, err := dsh.JSON(f); err != nil || string(got) != `{"kind":"error","failure":{"message":"m","code":"SERVER"}}` {
		t.Errorf("%s %v", got, err)
	}
	u := dsh.Usage{InputTokens: 1, OutputTokens: 2, CachedInputTokens: 3, ReasoningTokens: 4}.Add(dsh.Usage{InputTokens: 10, OutputTokens: 20, CachedInputTokens: 30, ReasoningTokens: 40})
	if got, err := dsh.JSON(u); err != nil || string(got) != `{"inputTokens":11,"outputTokens":22,"cachedInputTokens":33,"reasoningTokens":44}` {
		t.Errorf("%s %v", got, err)
	}
	if got, err := dsh.JSON(dsh.Usage{}); err != nil || string(got) != `{"inputTokens":0,"outputTokens":0}` {
		t.Errorf("%s %v", got, err)
	}
}

func FuzzBlockJSON(f *testing.F) {
	f.Add([]byte(`{"type":"tool-result","callId":"c","content":[{"type":"image","mediaType":"m","data":"AA=="}],"isError":true}`))
	f.Add([]byte(`{"type":"reasoning","text":"\u2028","opaque": { "a" : [1.0, "<"] } }`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		roundTrip[dsh.Block](t, raw)
		roundTrip[dsh.Chunk](t, raw)
	})
}

// roundTrip holds that what is written once reads and writes to the same
// bytes.
func roundTrip[T any](t *testing.T, raw []byte) {
	t.Helper()
	var one, two T
	if json.Unmarshal(raw, &one) != nil {
		return
	}
	a, err := dsh.JSON(one)
	if err != nil {
		return // a type that is not written
	}
	if err := json.Unmarshal(a, &two); err != nil {
		t.Fatalf("%s: %v", a, err)
	}
	if b, err := dsh.JSON(two); err != nil || string(a) != string(b) {
		t.Errorf("%s becomes %s, %v", a, b, err)
	}
}
