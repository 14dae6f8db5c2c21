package fault

import (
	"strings"

	"github.com/dsh-agent/dsh"
)

// specificCode is the table of the codes and types that mean one thing only,
// whatever the words and the status beside them say. A word is normal(code).
//
// A generic type (invalid_request_error, api_error, bad_request_error …) is in
// no table: it is no evidence.
func specificCode(word string) dsh.Code { //nolint:funlen // a table
	switch word {
	case
		"contextlengthexceeded", // OpenAI and its like
		"contextwindowexceeded",
		"contextwindowexceedederror", // LiteLLM
		"contextlengthexceedederror",
		"contextsizeexceeded",
		"contextoverflow",
		"contextoverflowerror",
		"contexttoolong",
		"contextlimitexceeded",
		"exceedcontextsizeerror", // llama.cpp
		"exceedcontextsize",
		"tokenslimitreached",         // GitHub Models
		"modelcontextwindowexceeded", // Anthropic, a stop reason
		"modelmaxpromptlength",
		"modelmaxprompttokensexceeded", // GitHub Copilot: model_max_prompt_tokens_exceeded
		"promptistoolong",
		"prompttoolong",
		"inputtoolong",
		"inputtokenlimitexceeded",
		"inputlengthexceeded",
		"prompttokenlimitexceeded",
		"maxcontextlengthexceeded",
		"inputtokensexceeded":
		return dsh.CodeContextWindow
	case
		"insufficientquota",          // OpenAI
		"insufficientuserquota",      // new-api
		"preconsumetokenquotafailed", // new-api
		"insufficientbalance",
		"insufficientbalanceerror",
		"insufficientcredit",
		"insufficientcredits",
		"insufficientfunds",
		"billinghardlimitreached", // OpenAI
		"billingnotactive",        // OpenAI
		"billingerror",            // Anthropic
		"billingdisabled",         // Google
		"billinglimitexceeded",
		"usagelimitreached", // ChatGPT plans
		"usagelimitexceeded",
		"usagenotincluded",          // ChatGPT plans
		"exceededcurrentquotaerror", // Moonshot
		"creditsexhausted",
		"creditlimitexceeded",
		"creditserror", // OpenCode Zen
		"outofcredits",
		"nocredits",
		"paymentrequired",
		"paymentrequirederror",
		"blockedapiaccess", // Groq
		"prepaidbilloverdue",
		"creditbalanceexhausted",         // OpenAI
		"organizationspendlimitexceeded", // OpenAI
		"projectspendlimitexceeded",      // OpenAI
		"organizationusagelimitexceeded", // OpenAI
		"quotaexhausted",                 // Google
		"budgetexceeded",                 // LiteLLM
		"budgetexceedederror",
		"spendlimitreached",
		"spendlimitexceeded",
		"monthlylimitexceeded",
		"monthlylimiterror",
		"keylimitexceeded",
		"arrearage", // DashScope
		"accountarrears",
		"accountoverdueerror", // Volcengine
		"accountoverdue",
		"setlimitexceeded",            // Volcengine
		"allocationquotafreetieronly", // DashScope
		"freetieronly",
		"freeusagelimiterror", // OpenCode Zen
		"invalidsubscription", // Volcengine
		"subscriptionrequired",
		"prepaidbillorderoverdue", // DashScope
		"postpaidbilloverdue",     // DashScope
		"commoditynotpurchased":   // DashScope
		return dsh.CodeQuota
	case
		"contentfilter", // Azure, Moonshot
		"contentfiltered",
		"contentpolicyviolation",
		"contentpolicyviolationerror", // LiteLLM
		"contentmoderation",
		"contentmoderationerror",
		"contentblocked",
		"responsibleaipolicyviolation", // Azure
		"datainspectionfailed",         // DashScope
		"cyberpolicy",                  // OpenAI
		"moderationblocked",            // OpenAI
		"policyviolation",
		"promptblocked",
		"prohibitedcontent",
		"guardrailintervened",                 // Bedrock
		"sensitivecontentdetected",            // Volcengine
		"inputtextsensitivecontentdetected",   // Volcengine
		"inputimagesensitivecontentdetected",  // Volcengine
		"outputtextsensitivecontentdetected",  // Volcengine
		"outputimagesensitivecontentdetected", // Volcengine
		"flaggedcontent",
		"safetyerror",
		"safetyviolation":
		return dsh.CodeContentFilter
	case
		"invalidapikey", // OpenAI
		"incorrectapikey",
		"apikeyinvalid", // Google
		"apikeyexpired",
		"apikeyserviceblocked",
		"missingapikey",
		"noapikey",
		"authenticationerror",        // Anthropic
		"invalidauthenticationerror", // Moonshot
		"incorrectapikeyerror",       // Moonshot
		"unauthenticated",            // Google
		"invalidtoken",
		"tokenexpired",
		"expiredtoken",
		"expiredtokenexception",       // AWS
		"unrecognizedclientexception", // AWS
		"invalidsignatureexception",   // AWS
		"tokennotfoundindb",           // LiteLLM
		"expiredkey",                  // LiteLLM
		"autherror",
		"unsupportedcountryregionterritory", // OpenAI
		"organizationrestricted",            // Groq
		"keymodelaccessdenied",              // LiteLLM
		"wrongapikey",                       // Cerebras
		"organizationonhold",                // Anthropic
		"accountdeactivated",                // OpenAI
		"invalidorganization":               // OpenAI
		return dsh.CodeAuth
	case
		"overloadederror",        // Anthropic
		"modelcapacityexhausted", // Google
		"serverisoverloaded",     // OpenAI
		"engineoverloadederror",  // Moonshot
		"engineoverloaded",
		"serveroverloaded", // Volcengine
		"modeloverloaded",
		"modelnotreadyexception", // Bedrock
		"slowdown":               // OpenAI: 503 slow_down, a loaded model
		return dsh.CodeServer
	case
		"timeouterror",          // Anthropic
		"deadlineexceeded",      // Google
		"modeltimeoutexception", // Bedrock
		"gatewaytimeout",
		"requesttimeout",
		"requesttimeouterror",
		"requesttimedout",
		"apitimeouterror",
		"operationtimeout":
		return dsh.CodeTimeout
	case
		"modelnotfound",
		"modelnotsupported",
		"invalidmodel",
		"unknownmodel",
		"unsupportedmodel",
		"deploymentnotfound",    // Azure
		"resourcenotfounderror", // Moonshot
		"unknownparameter",
		"unsupportedparameter",
		"unsupportedvalue",
		"missingrequiredparameter",
		"invalidjson",
		"invalidimage",
		"imageparseerror":
		return dsh.CodeInvalidRequest
	case
		"toolusefailed": // Groq: the model wrote a broken tool call
		return dsh.CodeProtocol
	case
		"requestcancelled",
		"cancelled": // Google's status word and OpenAI's
		return dsh.CodeAborted
	}
	return ""
}

// generalCode is the table of the codes and types that say something as long
// as no wording says better: a rate limit's type stands over exhausted credit
// too, and a server's error over an overflow.
func generalCode(word string) dsh.Code { //nolint:funlen // a table
	switch word {
	case
		"ramplimitexceeded", // Anthropic
		"ratelimiterror",    // Anthropic, OpenAI
		"ratelimitexceeded",
		"ratelimitexceedederror",
		"ratelimitreachederror", // Moonshot
		"ratelimitreached",      // GitHub Models
		"ratelimited",           // Mistral
		"ratelimit",
		"modelratelimit", // Together
		"toomanyrequests",
		"toomanytokenserror", // Cerebras
		"toomanyrequestserror",
		"tokenquotaexceeded",   // Cerebras: a minute's tokens
		"requestquotaexceeded", // Cerebras
		"queueexceeded",        // Cerebras
		"throttlingexception",  // AWS
		"throttling",           // DashScope
		"throttled",
		"throttlingratequota",       // DashScope
		"throttlingallocationquota", // DashScope
		"limitrequests",             // DashScope
		"limitburstrate",            // DashScope
		"requestlimitexceeded",
		"concurrencylimitexceeded",
		"resourceexhausted",            // Google
		"someresourcehasbeenexhausted", // xAI
		"limitation",                   // OpenCode Zen
		"servicetiercapacityexceeded":  // Mistral
		return dsh.CodeRateLimit
	case
		"quotaexceedederror",
		"quotaexceeded",                 // GitHub Copilot, Volcengine
		"servicequotaexceededexception": // Bedrock
		return dsh.CodeQuota
	case
		"servererror",
		"internalservererror",
		"internalserverexception",
		"internalerror",
		"internalfailure",
		"internal",    // Google
		"unavailable", // Google
		"serviceunavailable",
		"serviceunavailableerror",
		"serviceunavailableexception",
		"theserviceiscurrentlyunavailable", // xAI
		"capacityexceeded",                 // Groq's flex tier
		"overloaded",
		"badgateway",
		"upstreamerror",
		"providererror",
		"providerdisconnected", // OpenRouter
		"provideroverloaded",
		"providerunavailable",
		"modelerrorexception",       // Bedrock
		"modelstreamerrorexception", // Bedrock
		"modelerror",
		"enginedead",
		"enginedeaderror", // vLLM
		"runtimeerror":
		return dsh.CodeServer
	case
		"vectorstoretimeout",
		"timeout":
		return dsh.CodeTimeout
	case
		"apiconnectionerror": // LiteLLM: between it and its upstream
		return dsh.CodeTransport
	case
		"invalidprompt": // OpenAI's word for a flagged prompt
		return dsh.CodeContentFilter
	case
		"cancellederror":
		return dsh.CodeAborted
	case
		"permissionerror",  // Anthropic
		"permissiondenied", // Google
		"permissiondeniederror",
		"accessdeniedexception", // AWS
		"accessdenied",
		"unauthorized",
		"forbidden",
		"requestforbidden",
		"authenticationfailed":
		return dsh.CodeAuth
	case
		"notfounderror",
		"notfound", // Google
		"resourcenotfound",
		"resourcenotfoundexception",        // AWS
		"validationexception",              // AWS
		"invalidargument",                  // Google
		"clientspecifiedaninvalidargument", // xAI
		"failedprecondition",               // Google
		"invalidvalue",
		"invalidparameter",      // DashScope
		"invalidparametererror", // DashScope
		"badrequesterror",       // vLLM, LiteLLM
		"badrequest",
		"unprocessableentityerror",
		"unsupportedparamserror", // LiteLLM
		"requesttoolarge":        // Anthropic: the body's bytes
		return dsh.CodeInvalidRequest
	}
	return ""
}

// leftoverCode is read where an error came under a 2xx, so that there is no
// status to go by.
func leftoverCode(word string) dsh.Code {
	switch word {
	case
		"apierror": // Anthropic's 500
		return dsh.CodeServer
	case
		"invalidrequesterror",
		"invalidrequest",
		"badrequesterror":
		return dsh.CodeInvalidRequest
	}
	return ""
}

// numericCode is the table of the numeric codes of the vendors that have their
// own, by the shape of whose errors they are told.
func numericCode(vendor, number string) dsh.Code {
	switch vendor {
	case "minimax":
		return minimaxCode(number)
	case "zhipu":
		return zhipuCode(number)
	}
	return ""
}

// minimaxCode: see https://platform.minimax.io/docs/api-reference/errorcode.
func minimaxCode(number string) dsh.Code {
	switch number {
	case "1000", "1013", "1024", "1033", "2064":
		return dsh.CodeServer
	case "1001":
		return dsh.CodeTimeout
	case "1002", "1041", "2045":
		return dsh.CodeRateLimit
	case "1004", "2049":
		return dsh.CodeAuth
	case "1008", "2056":
		return dsh.CodeQuota
	case "1026", "1027":
		return dsh.CodeContentFilter
	case "1039":
		return dsh.CodeContextWindow
	case "1042", "2013":
		return dsh.CodeInvalidRequest
	}
	return ""
}

// zhipuCode: see https://docs.bigmodel.cn/cn/api/api-code.
func zhipuCode(number string) dsh.Code {
	switch number {
	case "1000", "1001", "1002", "1003", "1004", "1100", "1110", "1111", "1112", "1120", "1121", "1220":
		return dsh.CodeAuth
	case "1113", "1304", "1308", "1309", "1310", "1311":
		return dsh.CodeQuota
	case "1200", "1230", "1234", "1312":
		return dsh.CodeServer
	case "1210", "1211", "1212", "1213", "1214", "1215", "1221", "1222", "1231":
		return dsh.CodeInvalidRequest
	case "1261":
		return dsh.CodeContextWindow
	case "1300", "1301":
		return dsh.CodeContentFilter
	case "1302", "1303", "1305", "1313":
		return dsh.CodeRateLimit
	}
	return ""
}

// specific looks for a word that means one thing only. Google's quota details
// are as good as one.
func specific(r *report) (dsh.Code, string, bool) {
	if code, rule, ok := googleQuota(r); ok {
		return code, rule, true
	}
	for _, w := range r.words {
		if code := numericCode(r.vendor, w.raw); code != "" && code != dsh.CodeInvalidRequest {
			return code, "code " + w.raw + " of " + r.vendor, true
		}
		if code := specificCode(w.norm); code != "" {
			return code, "code " + w.raw, true
		}
	}
	for _, w := range r.words {
		if code := specificFamily(w.norm); code != "" {
			return code, "code like " + w.raw, true
		}
	}
	return "", "", false
}

// specificFamily tells, by what they are made of, the codes that no table has
// and that mean one thing only.
func specificFamily(word string) dsh.Code {
	has := hasParts(word)
	switch {
	case has("context", "exceed"), has("context", "overflow"), has("prompt", "toolong"), has("input", "toolong"):
		return dsh.CodeContextWindow
	case has("insufficient", "balance"), has("insufficient", "credit"), has("insufficient", "quota"), has("insufficient", "fund"),
		has("spendlimit"), has("usagelimit"), has("creditbalance"), has("budget", "exceed"), has("overdue"), has("billing"):
		return dsh.CodeQuota
	case has("contentfilter"), has("contentpolicy"), has("moderation"), has("sensitive", "content"), has("guardrail", "interven"):
		return dsh.CodeContentFilter
	case has("invalid", "apikey"), has("incorrect", "apikey"), has("expired", "apikey"), has("missing", "apikey"):
		return dsh.CodeAuth
	}
	return ""
}

// generalFamily does so for the codes that others may contradict.
func generalFamily(word string) dsh.Code {
	has := hasParts(word)
	switch {
	case has("ratelimit"), has("throttl"), has("toomany"), has("concurren"):
		return dsh.CodeRateLimit
	case has("apikey"), has("authenticat"), has("unauthori"), has("credential"):
		return dsh.CodeAuth
	case has("overload"), has("unavailable"), has("internal", "error"):
		return dsh.CodeServer
	case has("timeout"), has("timedout"), has("deadline"):
		return dsh.CodeTimeout
	case has("notfound"), has("unsupported"), has("invalidrequestmessage"), has("invalidparam"):
		return dsh.CodeInvalidRequest
	}
	return ""
}

// hasParts asks whether a word is made of parts. A sentence is no word.
func hasParts(word string) func(parts ...string) bool {
	return func(parts ...string) bool {
		for _, p := range parts {
			if !strings.Contains(word, p) {
				return false
			}
		}
		return len(word) <= 48
	}
}

// googleQuota reads a google.rpc.QuotaFailure: a limit of nothing and a limit
// by the day are no rate. The retry delay beside them is not to be believed,
// and is reported nevertheless: it is a fact.
func googleQuota(r *report) (dsh.Code, string, bool) {
	rate := false
	for _, q := range r.quotas {
		id := normal(q.id)
		switch {
		case q.value == "0", strings.Contains(id, "perday"), strings.Contains(id, "permonth"):
			return dsh.CodeQuota, "quota " + q.id, true
		case strings.Contains(id, "perminute"), strings.Contains(id, "persecond"), strings.Contains(id, "perhour"):
			rate = true
		}
	}
	if rate {
		return dsh.CodeRateLimit, "quota " + r.quotas[0].id, true
	}
	return "", "", false
}

// general looks for a word that others may contradict.
func general(r *report) (dsh.Code, string, bool) {
	for _, w := range r.words {
		if code := generalCode(w.norm); code != "" {
			return code, "code " + w.raw, true
		}
		if code := numericCode(r.vendor, w.raw); code != "" {
			return code, "code " + w.raw + " of " + r.vendor, true
		}
	}
	for _, w := range r.words {
		if code := generalFamily(w.norm); code != "" {
			return code, "code like " + w.raw, true
		}
	}
	return "", "", false
}
