package fault

import (
	"net/http"
	"strings"

	"github.com/dsh-agent/dsh"
)

// The headers that hold the provider's own id of a request, and those of the
// edge before it, which are better than nothing.
var (
	ownIDs = []string{
		"x-request-id", "request-id", // OpenAI and nearly all; Anthropic
		"x-oai-request-id",                   // ChatGPT
		"apim-request-id", "x-ms-request-id", // Azure
		"x-amzn-requestid", "x-amzn-request-id", // AWS
		"x-ds-trace-id", "x-deepseek-request-id", // DeepSeek
		"mistral-correlation-id",
		"nvcf-reqid",          // NVIDIA
		"x-github-request-id", // GitHub Models, Copilot
		"x-generation-id",     // OpenRouter
		"msh-request-id",      // Moonshot
		"x-siliconcloud-trace-id", "x-dashscope-request-id", "x-tt-logid", "x-api-request-id",
		"x-litellm-call-id", "x-goog-request-id", "x-cloud-trace-context", "inference-id",
		"x-trace-id", "trace-id", "x-correlation-id", "request_id", "requestid",
	}
	edgeIDs = []string{"cf-ray", "x-amz-cf-id", "x-azure-ref", "x-vercel-id", "x-served-by-id", "x-kong-request-id", "fly-request-id"}
)

const maxID = 256

// requestID finds the provider's id of a request: in its header, then in the
// body, then the edge's.
func requestID(h http.Header, r *report) dsh.RequestID {
	for _, name := range ownIDs {
		if id := fitID(h.Get(name)); id != "" {
			return id
		}
	}
	for _, id := range []string{r.id, r.traced} {
		if id := fitID(id); id != "" {
			return id
		}
	}
	for _, name := range edgeIDs {
		if id := fitID(h.Get(name)); id != "" {
			return id
		}
	}
	return ""
}

// fitID refuses what cannot be an id.
func fitID(s string) dsh.RequestID {
	s = strings.TrimSpace(s)
	if len(s) > maxID || strings.ContainsFunc(s, func(c rune) bool { return c < 0x21 || c > 0x7e }) {
		return ""
	}
	return dsh.RequestID(s)
}
