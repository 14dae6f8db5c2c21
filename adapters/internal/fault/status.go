package fault

import (
	"fmt"

	"github.com/dsh-agent/dsh"
)

// statusCode says what a status means where nothing better is known: RFC 9110,
// and what edges and providers have made up beside it.
func statusCode(status int) dsh.Code {
	switch status {
	case 301, 302, 303, 307, 308: // another place: no redirect is followed
		return dsh.CodeInvalidRequest
	case 400, 404, 405, 406, 410, 411, 412, 413, 414, 415, 417, 422, 426, 428, 431:
		return dsh.CodeInvalidRequest
	case 401, 403, 407:
		return dsh.CodeAuth
	case 402:
		return dsh.CodeQuota
	case 420, 429: // 420: "enhance your calm"
		return dsh.CodeRateLimit
	case 408, 504:
		return dsh.CodeTimeout
	case 522, 524, 598, 599: // Cloudflare's: the origin did not connect, or answer, in time
		return dsh.CodeTimeout
	case 409, 424, 425: // two at once, says the provider, and SDKs send again; a dependency; too early
		return dsh.CodeServer
	case 498: // Groq: no capacity in the flex tier
		return dsh.CodeServer
	case 421: // misdirected: another connection would do
		return dsh.CodeTransport
	case 451:
		return dsh.CodeContentFilter
	case 499: // nginx: the client went away
		return dsh.CodeAborted
	}
	if status >= 500 && status <= 599 {
		return dsh.CodeServer
	}
	return ""
}

// byStatus is the last table. The HTTP status counts before one that the body
// states, but a 2xx says nothing about an error.
func byStatus(status int, r *report) (dsh.Code, string) {
	for _, s := range []struct {
		n     int
		whose string
	}{{status, "status"}, {r.stated, "stated status"}} {
		if code := statusCode(s.n); code != "" {
			return code, fmt.Sprintf("%s %d", s.whose, s.n)
		}
		if s.n >= 300 {
			return dsh.CodeUnknown, fmt.Sprintf("%s %d, which says nothing", s.whose, s.n)
		}
		if s.n == status {
			for _, w := range r.words {
				if code := leftoverCode(w.norm); code != "" {
					return code, "type " + w.raw
				}
			}
		}
	}
	return dsh.CodeUnknown, "nothing is known of it"
}
