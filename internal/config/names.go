package config

import "strings"

// What names are made of. Patterns would do, but a pattern that counts takes a
// millisecond to compile, at each start of the program.
const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
)

// named reports whether s is 1 to most bytes of rest, the first one of first.
func named(s, first, rest string, most int) bool {
	return s != "" && len(s) <= most && strings.IndexByte(first, s[0]) >= 0 && strings.Trim(s, rest) == ""
}

func isProviderName(s string) bool {
	return named(s, lower+upper+digits, lower+upper+digits+"_.-", 64)
}

// isToolName holds for a tool or a server, as all providers take it.
func isToolName(s string) bool { return named(s, lower, lower+digits+"_-", 32) }

func isVariable(s string) bool { return named(s, lower+upper+"_", lower+upper+digits+"_", 1<<20) }

// isHeader holds for a token of RFC 9110, section 5.6.2, of no more than 256
// bytes.
func isHeader(s string) bool {
	const token = lower + upper + digits + "!#$%&'*+.^_`|~-"
	return named(s, token, token, 256)
}
