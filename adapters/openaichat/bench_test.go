package openaichat_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/sashabaranov/go-openai"

	"github.com/dsh-agent/dsh/adapters/openaichat"
)

// answer is a stream of n deltas of four bytes.
func answer(n int) []byte {
	var b bytes.Buffer
	b.WriteString(chunk(`{"role":"assistant","content":""}`, "null"))
	for i := range n {
		b.WriteString(chunk(fmt.Sprintf(`{"content":"%04x"}`, i&0xffff), "null"))
	}
	b.WriteString(chunk("{}", `"stop"`) + "data: [DONE]\n\n")
	return b.Bytes()
}

// BenchmarkStream reads a stream of 10,000 deltas: the whole way from the
// response's body to chunks.
func BenchmarkStream(b *testing.B) {
	body := answer(10000)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if f, _ := openaichat.Classify(200, nil, body); f != nil {
			b.Fatal(f)
		}
	}
}

type doer []byte

func (d doer) Do(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(d))}, nil
}

// BenchmarkLibrary reads the same with go-openai's reader.
func BenchmarkLibrary(b *testing.B) {
	body := answer(10000)
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		config := openai.DefaultConfig("")
		config.HTTPClient = doer(body)
		s, err := openai.NewClientWithConfig(config).CreateChatCompletionStream(b.Context(), openai.ChatCompletionRequest{Model: "m"})
		if err != nil {
			b.Fatal(err)
		}
		n := 0
		for {
			if _, err := s.Recv(); err != nil {
				break
			}
			n++
		}
		if n != 10002 {
			b.Fatal(n)
		}
	}
}

func BenchmarkClassify(b *testing.B) {
	for name, c := range map[string]struct {
		status int
		body   string
	}{
		"code":    {429, `{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}`},
		"wording": {400, `{"error":{"message":"This model's maximum context length is 8192 tokens. However, you requested 8421 tokens (4325 in the messages, 4096 in the completion). Please reduce the length of the messages or completion.","type":"invalid_request_error","param":"messages","code":null}}`},
		"status":  {502, "<html><head><title>502 Bad Gateway</title></head><body></body></html>"},
		"64 KiB":  {500, `{"error":{"message":"` + strings.Repeat("all work and no play ", 3000) + `"}}`},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if f, _ := openaichat.Classify(c.status, nil, []byte(c.body)); f == nil {
					b.Fatal("a good answer")
				}
			}
		})
	}
}
