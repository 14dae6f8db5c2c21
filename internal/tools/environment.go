package tools

import (
	"regexp"
	"slices"
	"strings"
)

// Environment is what a command of the model's is given of the variables of
// the process: all but those that are named as secrets, that hold the value of
// one of those, or that look like one by name or value. pass names some that
// look so and are given all the same; a named secret never is.
func Environment(all, secrets, pass []string) []string {
	var values []string
	for _, v := range all {
		name, value, _ := strings.Cut(v, "=")
		if slices.Contains(secrets, name) && len(value) >= minSecret {
			values = append(values, value)
		}
	}
	var env []string
	for _, v := range all {
		name, value, _ := strings.Cut(v, "=")
		hidden := slices.Contains(secrets, name) || slices.ContainsFunc(values, func(s string) bool { return strings.Contains(value, s) })
		if hidden || !slices.Contains(pass, name) && (secretName(name) || secretValue(value)) {
			continue
		}
		env = append(env, v)
	}
	return env
}

// minSecret is the length from which a value is looked for in others: shorter
// ones occur by chance.
const minSecret = 8

// secretName reports whether a variable is called what secrets are called.
func secretName(name string) bool {
	upper := strings.ToUpper(name)
	for _, part := range []string{"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "APIKEY", "CREDENTIAL"} {
		if strings.Contains(upper, part) {
			return true
		}
	}
	words := strings.FieldsFunc(upper, func(r rune) bool { return r == '_' || r == '-' || r == '.' })
	for i, w := range words {
		switch w {
		case "KEY", "KEYS", "PASS", "AUTH", "COOKIE", "COOKIES", "PAT", "PRIVATE", "DSN":
			return true
		case "PWD": // MYSQL_PWD, and not the folder's variable
			if i > 0 {
				return true
			}
		}
	}
	return false
}

// userinfo is a URL with a password in it; a key in armour begins with dashes.
var userinfo = regexp.MustCompile(`[a-zA-Z][a-zA-Z0-9+.-]*://[^/\s:@]*:[^/\s@]+@`)

// secretValue reports whether a value looks like a key. The beginnings are
// those of well-known providers' keys.
func secretValue(v string) bool {
	v = strings.TrimSpace(v)
	for _, p := range []string{
		"sk-", "sk_", "rk_", "pk_live_", "gsk_", "hf_", "xai-", "r8_", "AIza", "AKIA", "ASIA", "ya29.", "eyJ",
		"ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "npm_", "pypi-", "xoxb-", "xoxp-", "xapp-", "dop_v1_",
		"Bearer ", "bearer ", "Basic ", "-----BEGIN ",
	} {
		if strings.HasPrefix(v, p) && len(v) >= len(p)+8 {
			return true
		}
	}
	return userinfo.MatchString(v)
}
