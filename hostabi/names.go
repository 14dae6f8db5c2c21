package hostabi

import "strings"

// IsPolicyName reports whether s is 1 to 64 of a-z, 0-9, dot, dash and
// underscore, the first a letter or digit. It is also the name of a file in the
// policies folder, which some file systems do not tell apart by case.
func IsPolicyName(s string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789"
	return s != "" && len(s) <= 64 && strings.IndexByte(letters, s[0]) >= 0 && strings.Trim(s, letters+"._-") == ""
}

// IsDigest reports whether s is a SHA-256 digest in lower-case hex, as modules
// are named by everywhere.
func IsDigest(s string) bool { return len(s) == 64 && strings.Trim(s, "0123456789abcdef") == "" }
