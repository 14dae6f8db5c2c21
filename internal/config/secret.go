package config

import (
	"fmt"
	"io"
	"strings"
)

// A Secret is a value that a variable holds. No way of printing it shows the
// value: only Reveal gives it. The zero value names no variable.
type Secret struct {
	Variable string // "": there is none

	// reveal gives the value. It is a function because fmt prints what stands
	// in fields that are not exported, whatever the type's methods say.
	reveal func() string
}

func newSecret(variable, value string) Secret {
	return Secret{variable, func() string { return value }}
}

// Reveal is the value, for the header that it is sent in; "" when unset.
func (s Secret) Reveal() string {
	if s.reveal == nil {
		return ""
	}
	return s.reveal()
}

// IsSet reports whether the variable is set and not empty.
func (s Secret) IsSet() bool { return s.Reveal() != "" }

// String names the variable and says whether it is set.
func (s Secret) String() string {
	switch {
	case s.Variable == "":
		return "none"
	case !s.IsSet():
		return "$" + s.Variable + " (not set)"
	}
	return "$" + s.Variable + " (set)"
}

// Format prints String for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, s.String()) }

// MarshalText is String.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// fault says why the value cannot be sent as a header; "" when it can.
func (s Secret) fault() string {
	switch v := s.Reveal(); {
	case s.Variable == "":
		return ""
	case v == "":
		return "is not set"
	case strings.TrimSpace(v) != v:
		return "begins or ends with white space or a line end"
	case !headerValue(v):
		return "holds characters that no header can carry"
	}
	return ""
}

// looksSecret reports whether a value looks like a key or a credential that
// was written where the name of a variable, or nothing secret, belongs. The
// prefixes are those of well-known providers' keys.
func looksSecret(v string) bool {
	low := strings.ToLower(strings.TrimSpace(v))
	for _, p := range []string{"bearer ", "basic ", "token "} {
		if rest, ok := strings.CutPrefix(low, p); ok && len(rest) >= 12 && !strings.Contains(rest, " ") {
			return true
		}
	}
	for _, p := range []string{"sk-", "sk_", "pk-", "gsk_", "hf_", "xai-", "ghp_", "gho_", "github_pat_", "xoxb-", "aiza", "r8_", "eyj"} {
		if strings.HasPrefix(low, p) && len(low) >= len(p)+8 && !strings.Contains(low, " ") {
			return true
		}
	}
	return false
}

// looksLikeKey is looksSecret for a word where a variable's name is meant:
// names are upper case, keys are long and mixed.
func looksLikeKey(v string) bool {
	return looksSecret(v) || len(v) >= 24 && strings.ContainsAny(v, "0123456789") && strings.ToUpper(v) != v
}
