package fault

import (
	"strconv"
	"strings"

	"github.com/dsh-agent/dsh"
)

// A wording is one kind of sentence. Sentences are looked at in lower case,
// without the addresses in them (a rate limit's message links to a billing
// page). The table is in order of veto: the first that holds decides.
type wording struct {
	name   string
	code   dsh.Code
	says   phrases
	unless phrases                          // nil: nothing contradicts
	when   func(status int, r *report) bool // nil: always
}

// thousands finds the commas in 1,048,576.
var thousands = lazily(`(\d),(?:\b)`)

// The words that tell what a limit is one of.
var ( //nolint:gochecknoglobals // compiled regexps
	aWindow = says(`per[ -](second|minute|min|hour)\b`, `\b(rpm|tpm|rps|tps|qps|qpm|itpm|otpm)\b`, `(requests?|tokens?|queries|calls?) ?/ ?(s|sec|second|min|minute|m|hour)\b`,
		`\bby ?minute\b`, `per \d+ ?s(econds)?\b`, `每分钟|每秒|分钟内`)
	aDay  = says(`per[ -]day\b`, `\bby ?day\b`, `per 86400 ?s`, `\b(rpd|tpd)\b`, `\bdaily\b`, `(per[ -]|/ ?)(day|month|week)\b`, `每天|每日|当日|今日`)
	aRate = says(`rate[ _-]?limit`, `too many (requests|concurrent|connections|calls|messages)`, `throttl`, `rate[ _-]?quota`, `request rate\b`, `slow down`,
		`requests? (limit|frequency)`, `parallel request`, `exhausted your capacity`, `too many pending`, `max request`, `concurren(cy|t) (limit|request|quota)`, `请求过于频繁|过于频繁|请求频率|限流|限速|速率限制|并发`)
	aCap   = says(`\bmax[_ ]?(completion[_ ]|output[_ ]|new[_ ])?tokens\b`, `\bmaxoutputtokens\b`, `\bnum_predict\b`, `maximum tokens (you|value|requested)`, `maximum (allowed )?number of output tokens`, `(completion|output) tokens`)
	aThing = says(`\bimages?\b`, `\bbytes\b`, `\b\d+ ?[mk]i?b\b`, `\bpixels?\b`, `\bpages\b`, `\bfiles?\b`, `\baudio\b`, `\bvideo\b`, `\bstop sequences?\b`, `\btools?\b.*\bmaximum\b`, `\bname\b`, `\bschema\b`)
	aInput = says(`\b(prompt|input|inputs|messages|context|conversation|request has)\b`)
)

var tooLargeFor = lazily(`request too large for .{0,160}\blimit:? (\d+),? requested:? (\d+)`)

// wordings is the table. A new wording is a part of a line here, and a case in
// testdata/wordings.jsonl.
var wordings = []wording{ //nolint:gochecknoglobals // a table of compiled regexps
	// The prompt and the output cap together, in a minute's budget: a request
	// larger than the whole budget never passes, however long one waits.
	{name: "one request over the whole budget", code: dsh.CodeContextWindow,
		says: says(`request too large for`), when: overBudget},

	{name: "a filter", code: dsh.CodeContentFilter,
		says: says(`content[ _-]?(management|filter|moderation|policy|safety|polic)`, `responsible ?ai`, `content exists risk`, `considered high risk`, `usage (policy|policies|guidelines)`,
			`\b(was|were|been|is|content|prompt|input|request|message|output) flagged\b`, `inappropriate content`, `(sensitive|harmful|unsafe|offensive|illegal|prohibited|explicit) (content|words?|information|material|text)`,
			`safety (system|filter|policy|polic|reasons?|guidelines?|checks?|concerns?)`, `(blocked|filtered|rejected|refused|denied|stopped) (by|due to|because of|for|under) .{0,40}(polic|guardrail|moderation|safety|filter|content|guideline)`,
			`guardrail.{0,40}(interven|block|violat|trigger|reject)`, `new_sensitive`, `jailbreak`, `violat\w+ .{0,60}(polic|guideline|terms|rules)`, `requires moderation`, `moderation (system|policy|filter)`, `\brecitation\b`, `unsafe or sensitive`,
			`敏感|违规|不安全|内容安全|违反.{0,20}(政策|规定|准则)|审核|高风险|不当内容`),
		unless: says(`unsupported|unknown (parameter|field)`)},

	{name: "credit or plan", code: dsh.CodeQuota,
		says: says(`insufficient (account |user |token |wallet )?(balance|credits?|quota|funds?)`, `(not|n't have) enough (balance|credits?|funds?|quota)`, `credit balance`, `(out of|no( more| remaining)?|ran out of|run out of|all( of)? your|all available) (the )?(available )?credits?\b`,
			`credits? (have|has|are|is|was|were)( all)?( been)? ?(depleted|exhausted|expired|used|consumed|gone)`, `credits? (depleted|exhausted|expired|limit|required)`, `(account )?balance (is )?(too low|insufficient|exhausted|negative|not enough|empty|below)`, `\bbilling (hard |soft )?(limit|quota|cap|account|issue|error)`,
			`billing (is |has )?(not |been )?(active|enabled|disabled|to be enabled)`, `enable billing`, `check your (plan|billing)`, `payment (method|required|is required|failed|overdue)`, `(purchase|buy|add|need) (more |additional |some )?(\d+ )?credits?\b`, `more credits`,
			`(n't|not) have (any |enough |sufficient )?(credits?|balance|funds|quota)`, `exceeded your .{0,30}\b(credits?|allowance|budget)\b`, `(no|zero)( remaining| available)? quota\b`, `credit card`, `past invoices?`, `out of (funds|balance|quota)`, `over (their |your |the )?budget\b`, `activate .{0,20}(subscription|billing|payment|plan)`, `\brecharge\b`, `\btop[ -]?up\b`, `(monthly|spending|spend|weekly|session|budget|plan|subscription|credit|key|account|usage) (usage |spend |spending |quota )?(limit|cap|quota|allowance)s?\b`, `(exceed\w*|over|crossed|reached)( your| the| its)?( max(imum)?| total| monthly| weekly)? budget\b`, `budget (has been |was |is |limit )?(exceeded|exhausted|reached)`,
			`\bin arrears\b|\barrears?\b|\boverdue\b|good standing`, `suspended due to`, `free (tier|quota|trial|usage|credits?|plan)( \w+){0,6} (exhausted|ended|expired|used|over|reached|exceeded)`, `trial( \w+){0,3} (ended|expired|over)`,
			`upgrade (your|to|for|now) ?(a |the )?(plan|account|subscription|higher|paid|pro|continue)`, `(no|no active|inactive|without an?) (subscription|resource package|plan)\b`, `subscription (has )?(expired|ended|required|is required)`, `extra usage`, `\blimit: 0\b`, `specified api usage limits?`, `exceeded your (current|monthly|plan|total|account|weekly)( \w+)? quota`, `quota (has been |is |was )?(exhausted|used up|depleted)`,
			`余额不足|欠费|充值|额度不足|额度已|额度用|套餐|配额已|账户.{0,6}(冻结|停用)|次数.{0,4}(用完|用尽|上限)`),
		unless: says(`exceeded your current requests`, `hourly usage limit`, `organization.{0,30}(rate limit|tokens? per min|requests? per min)`, `(would )?exceed (the|your) (rate limit|organization).{0,80}per minute`),
		when:   notGoogleRate},

	{name: "a day's allowance", code: dsh.CodeQuota, says: aDay, when: longWait},

	{name: "a rate", code: dsh.CodeRateLimit,
		says: aRate.and(aWindow).and(says(`\b(try|retry|wait)\b.{0,30}\b(in|after|for)? ?\d+(\.\d+)? ?(ms|s|m|h|sec|seconds?|minutes?|hours?)\b`, `please wait (a moment|before|and)`, `quota exceeded for (metric|quota)`, `resource (has been |is )?exhausted`,
			`hourly usage limit`, `limit reached`, `no deployments available`, `too quickly`, `too fast`, `\bcooldown\b`, `too many tokens`, `request reached`, `quota (exceeded|limit)`, `exceeded (your|the) (current )?(requests?|rate|quota)`, `limit exceeded`, `请稍后再试.{0,8}频率`)),
		unless: says(`\b(context|prompt|input|model'?s?) (length|window|size|limit|token)`, `requested tokens`, `maximum (context|prompt|input|model)`, `\bcontext\b.{0,30}\b(exceed|limit)`, `timed? ?out`, `overloaded`, `high demand`, `high traffic`, `\bbusy\b`, `at capacity`, `deployment .{0,40}does not exist`, `model token limit`, `unavailable`, `peak load`),
		when:   mayPass},
	{name: "a rate, in so many words", code: dsh.CodeRateLimit, says: aRate.and(aWindow), when: mayPass},

	{name: "an output cap", code: dsh.CodeInvalidRequest, says: aCap, when: onlyTheCap},

	{name: "an overflow", code: dsh.CodeContextWindow,
		says: says(
			`maximum (context|prompt|input|model|sequence|token)( token| tokens)? ?(length|window|size|limit|count)`, `max(imum)?[_ ](model|prompt|input|context|seq(uence)?)[_ ](len(gth)?|tokens?|size)`, `context[ _-]?(length|window|size|limit)( \w+){0,4} (exceed|is full|too (small|long|large)|overflow|reached)`, `(exceed\w*|over|overflow\w*|larger than|longer than|greater than|beyond|fit (in|into|within)|outside)( \w+)?( \w+)? (of )?(the |its |your |this |available |maximum |max |model'?s? |allowed |supported |configured )*(context|token limit|tokens? allowed|prompt (length|limit|size)|input (length|limit|size|token))`,
			`context (limit|overflow|size|length|window)`, `(prompt|input|inputs|request|messages?|conversation|history|text|query)( \w+){0,3} (is |are |was )?(far |way |much )?too (long|large|many tokens)\b`, `too (long|large) for( the| this| requested)? ?(requested )?(model|context|endpoint)`, `too large for model with`, `too many (input |prompt |context )?tokens`,
			`input token count`, `prompt token count`, `maximum number of (input )?tokens`, `model token limit`, `range of input length`, `reduce (the |your )?(length|size|number|amount|prompt|input|context|messages)`, `(shorten|truncate) (your|the) (input|prompt|messages?|conversation|text)`, `(input|prompt|inputs|request\w*|total)[`+"`'"+`]? tokens?( \(?\d+\)?)? (\+ .{0,40})?(exceed|is greater|are greater|is larger|must be|count)`,
			`tokens? (count )?(\(\d+\) |of \d+ |\d+ )?exceeds?`, `requested (a total of )?\d+ tokens`, `\btokens?\b.{0,80}\b(exceed(s|ed|ing)?|(is|are|was|were) (greater|larger|longer|more) than|over the)\b.{0,60}(maximum|max|limit|length|window|\d{3})`, `request contains \d+ tokens`, `\(?\d+ tokens?\)? (exceeds?|is (greater|larger|more) than|>|over)`, `\d+ tokens > \d+`, `max(imum)? size: \d+ tokens`, `only supports? (up to )?\d+ (input |context )?tokens`, `supports up to \d+`, `too many total text`, `conversation (length|limit)`, `length of (the )?tokens`, `\bcontext is too long`, `configured context size`, `must have (less|fewer) than \d+ tokens`, `loaded with (a )?context length`, `(larger|longer|bigger) context`, `(shorter|smaller) (input|prompt)`, `current length is \d+ while limit`, `n_ctx|n_keep|kv cache (is )?full|context shift`, `input length .{0,60}(exceed|limit|max)`, `longer than the (maximum|model|context)`, `length of (the )?(prompt|input|messages?|context)`, `max_tokens must be at least 1, got -\d+`,
			`请求过大|内容过长|`+`上下文.{0,12}(超|长度|限制|过长)|输入.{0,12}(过长|超长|超过|超出|太长)|(超过|超出).{0,16}(上下文|最大长度|token|长度限制)|token.{0,12}(超过|超出|超限|过长)|prompt.{0,6}(过长|超长|too long)`),
		unless: says(`at capacity`), when: aboutTheRequest},

	{name: "a bad key", code: dsh.CodeAuth,
		says: says(`(invalid|incorrect|missing|wrong|expired|no|bad|unknown|revoked|disabled|malformed) (x-)?(api|auth|access|subscription|authentication|authorization|bearer)?[ -]?(key|token|credentials?)\b`, `api[ _-]?key (is |was |has )?(not |been )*(invalid|missing|incorrect|found|valid|provided|required|expired|disabled|revoked|set|authorized)`, `(provide|pass|supply|use|enter|obtain) .{0,20}api[ _-]?key`, `api key (expired|invalid|required|missing|not)`,
			`(invalid|no|missing|failed) (auth|authentication|authorization)`, `auth(entication|orization)? (fail\w*|error|required|is required|credentials)`, `unauthori[sz]ed|unauthenticated`, `(organization|account|project|user|team) (\S+ )?(is |has been |was )(disabled|deactivated|terminated|banned|suspended|restricted|blocked)`, `only authorized for use with`, `api key is (currently )?blocked`, `security token.{0,40}invalid`, `token (has |is )?(expired|invalid)`, `location is not supported`, `(country|region|territory).{0,30}not (supported|available|allowed)`, `令牌|鉴权|未授权|密钥|身份验证|api ?key.{0,6}(无效|错误|不存在|过期)`),
		unless: says(`unknown (parameter|field)`)},

	{name: "a clock", code: dsh.CodeTimeout,
		says: says(`timed?[ -]?out`, `\btimeout\b`, `deadline (expired|exceeded)`, `timing out`, `took too long`, `超时`), unless: says(`upstream connect error`), when: notTheRequest},

	{name: "a broken connection upstream", code: dsh.CodeTransport,
		says: says(`connection (was |is )?(reset|closed|aborted|lost|refused|error)`, `peer closed`, `incomplete (chunked )?read`, `unexpected eof`, `broken pipe`, `socket hang up`, `premature (end|close)`, `^terminated$`, `network (connection )?(error|lost)`),
		when: inStream},

	{name: "overload", code: dsh.CodeServer,
		says: says(`overload`, `over capacity`, `at capacity`, `\bcapacity\b`, `high (demand|traffic|load)`, `peak load`, `\bbusy\b`, `queue is full`, `no (available )?(instances?|slots?|workers?)\b`, `saturated`,
			`繁忙|过载|负载|拥挤|访问量过大|排队`),
		when: notTheRequest},

	{name: "a breakdown", code: dsh.CodeServer,
		says: says(`(temporarily|currently|is|model|service|server) (un|not )available`, `temporar(il)?y`, `service unavailable`, `internal (server )?error`, `server (had an )?error`, `error (occurred|was encountered) (while|during)`, `bad gateway`, `upstream`, `no healthy`, `backend`, `fatal (error|exception)`, `something went wrong`, `unexpected (error|exception)`, `an error occurred`, `exception`, `crash`, `out of memory|oom\b`, `not ready`, `engine (is )?(dead|not running)`, `try again later`, `retry (your|the) request`, `disconnected`, `(failed to load|unloaded|loading) (the )?model|model (was |is )?(unloaded|loading)`, `terminated`, `unavailable`,
			`服务不可用|内部错误|服务器错误|系统错误|系统异常|网络错误`),
		when: brokeDown},

	{name: "a bad request", code: dsh.CodeInvalidRequest,
		says: says(`does not exist`, `not (found|supported|allowed|permitted|valid|a valid)\b`, `\binvalid\b`, `unsupported`, `unrecognized`, `must (be|have|contain|provide)`, `\brequired\b`, `malformed`, `validation error`, `no such (model|file)`, `不存在|不支持|参数|无效`),
		when: inStream},
}

// worded looks for the first kind of sentence that holds.
func worded(status int, r *report) (dsh.Code, string, bool) {
	if r.html {
		return "", "", false // an edge's page: the status decides
	}
	for i := range wordings {
		w := &wordings[i]
		for _, t := range r.spoken() {
			m := w.says.find(t)
			if m == "" || w.unless.in(t) {
				continue
			}
			if w.when == nil || w.when(status, r) {
				return w.code, "wording of " + w.name + ": " + strconv.Quote(clip(m, 60)), true
			}
			break // when asks of all texts
		}
	}
	return "", "", false
}

// spoken returns the texts as the table wants them.
func (r *report) spoken() []string {
	if r.lower == nil {
		for _, t := range r.texts {
			t = urls().ReplaceAllString(ends(t), " ")
			t = thousands().ReplaceAllString(t, "$1")
			t = strings.Join(strings.Fields(strings.ToLower(t)), " ")
			r.lower = append(r.lower, strings.ReplaceAll(t, "’", "'"))
		}
	}
	return r.lower
}

// ends is the beginning and the end of a text: what matters in a long one
// stands in either.
func ends(t string) string {
	if len(t) <= 3000 {
		return t
	}
	return clip(t, 2000) + " … " + strings.ToValidUTF8(t[len(t)-800:], "")
}

func clip(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "")
	}
	return s
}

// any reports whether one of the texts has one of the phrases.
func (r *report) any(p phrases) bool {
	for _, t := range r.spoken() {
		if p.in(t) {
			return true
		}
	}
	return false
}

func (r *report) has(norm string) bool {
	for _, w := range r.words {
		if w.norm == norm {
			return true
		}
	}
	return false
}

// overBudget compares the numbers of a request that is too large for a
// minute's budget.
func overBudget(_ int, r *report) bool {
	for _, t := range r.spoken() {
		if m := tooLargeFor().FindStringSubmatch(t); m != nil {
			limit, _ := strconv.ParseInt(m[1], 10, 64)
			asked, _ := strconv.ParseInt(m[2], 10, 64)
			return asked > limit
		}
	}
	return false
}

// notGoogleRate is false for Google's RESOURCE_EXHAUSTED with no word of
// money: its quota sentence is said of minutes too.
func notGoogleRate(_ int, r *report) bool {
	if !r.has("resourceexhausted") {
		return true
	}
	return r.any(moneyWords)
}

var ( //nolint:gochecknoglobals // compiled regexps
	rollingDay = says(`rate limit reached`, `tpd rate limit`)
	forMoney   = says(`credits?\b.{0,20}unlock`)
	tokens     = says(`\btokens?\b`)
	moneyWords = says(`credits? `, `prepay`, `prepaid`, `\blimit: 0\b`, `spending`, `monthly`)
)

// longWait is true where a day's allowance is spent and the provider does not
// say that it takes less than an hour to come back.
func longWait(_ int, r *report) bool {
	for _, t := range r.texts {
		if d := spokenWait(t); d > 0 && d.Hours() < 1 {
			return false
		}
	}
	return !r.any(rollingDay) || r.any(forMoney)
}

// mayPass is false for the statuses under which a rate's words are an echo of
// the request.
func mayPass(status int, r *report) bool {
	switch status {
	case 401, 404, 405, 413, 415, 422:
		return false
	case 400:
		return r.any(aRate) || r.any(aWindow)
	}
	return true
}

// onlyTheCap is true where max_tokens alone is out of range, and not the sum
// of it and the input.
func onlyTheCap(_ int, r *report) bool {
	for _, t := range r.spoken() {
		if aCap.in(t) && !aInput.in(t) && !strings.Contains(t, "got -") {
			return true
		}
	}
	return false
}

// aboutTheRequest is false where the size is that of an image or a body, or
// where the key is at fault.
func aboutTheRequest(status int, r *report) bool {
	if status == 401 || status == 402 || status == 403 || status == 404 {
		return false
	}
	if code, _, _ := general(r); code == dsh.CodeRateLimit {
		return false // too many tokens for a minute
	}
	return !r.any(aThing) || r.any(tokens)
}

// notTheRequest is false for the statuses that blame the request: what sounds
// like a server there is a parameter's name, or advice.
func notTheRequest(status int, r *report) bool {
	if status >= 400 && status < 500 && status != 408 && status != 425 && status != 429 && status != 498 {
		return false
	}
	return true
}

// brokeDown is as notTheRequest, but for the status that says what it is.
func brokeDown(status int, r *report) bool {
	return status != 429 && notTheRequest(status, r) && (status >= 300 || r.stated != 429)
}

// inStream is true where there is no status to go by.
func inStream(status int, r *report) bool {
	return status < 300 && r.stated < 400 || status < 300 && r.stated >= 500
}
