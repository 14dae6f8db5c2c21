package fault

import "github.com/dsh-agent/dsh"

// FinishReason says what a provider's word for the end of an answer means: a
// good kind, or the code of a failure. "" is a stop: the stream was closed
// without one. A word that is not known is UNKNOWN: an answer is not taken for
// whole by a word that may say the opposite.
func FinishReason(word string) (dsh.FinishKind, dsh.Code) {
	switch normal(word) {
	case "", "stop", "endturn", "stopsequence", "eos", "eostoken", "complete", "completed", "finished", "done", "end", "stopped", "pauseturn", "null", "load":
		return dsh.FinishStop, ""
	case "toolcalls", "toolcall", "tooluse", "functioncall", "functioncalls":
		return dsh.FinishToolCalls, ""
	case "length", "maxtokens", "maxoutputtokens", "modellength", "maxlength", "maxcompletiontokens":
		return dsh.FinishLength, ""
	case "contentfilter", "contentfiltered", "safety", "recitation", "prohibitedcontent", "blocklist", "spii", "imagesafety", "imageprohibitedcontent",
		"refusal", "refused", "guardrailintervened", "sensitive", "moderation", "flagged", "blocked", "policyviolation":
		return "", dsh.CodeContentFilter
	case "modelcontextwindowexceeded", "contextlengthexceeded", "contextwindowexceeded", "contextoverflow":
		return "", dsh.CodeContextWindow
	case "error", "networkerror", "insufficientsystemresource", "abort", "aborted", "cancelled", "canceled", "internalerror", "servererror", "overloaded", "unavailable", "preempted":
		return "", dsh.CodeServer
	case "timeout", "timelimit":
		return "", dsh.CodeTimeout
	case "malformedfunctioncall", "unexpectedtoolcall", "malformedtoolcall", "malformedresponse", "repetitiontruncation":
		return "", dsh.CodeProtocol
	}
	return "", dsh.CodeUnknown
}
