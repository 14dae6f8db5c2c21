package cli

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// clean makes a text of a model, a provider or a file safe for a terminal: no
// control character but the line feed and the tab, none of the characters
// that turn the direction of writing, and no byte that is not UTF-8. What is
// taken out shows as U+FFFD, carriage returns and byte-order marks do not show.
func clean(s string) string {
	if isClean(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\r' || r == '\ufeff':
			return -1
		case unsafeRune(r):
			return utf8.RuneError
		}
		return r
	}, s)
}

func isClean(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= utf8.RuneSelf || c == 0x7f || c < ' ' && c != '\n' && c != '\t' {
			return !strings.ContainsFunc(s, func(r rune) bool { return r == '\ufeff' || unsafeRune(r) }) && utf8.ValidString(s)
		}
	}
	return true
}

func unsafeRune(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case unicode.IsControl(r): // C0, DEL and C1
		return true
	case r >= '\u202a' && r <= '\u202e', r >= '\u2066' && r <= '\u2069', r == '\u2028', r == '\u2029':
		return true
	}
	return false
}

// oneLine is a text as one clean line of at most max characters; what is cut
// shows as an ellipsis. Spaces and line ends of any number become one space.
func oneLine(s string, max int) string {
	const enough = 4 // bytes of a character, so that a long text is not walked
	if len(s) > max*enough*4 {
		s = s[:max*enough*4]
	}
	s = strings.Join(strings.Fields(clean(s)), " ")
	if utf8.RuneCountInString(s) <= max {
		return s
	}
	runes := []rune(s)
	return strings.TrimRight(string(runes[:max-1]), " ") + "…"
}
