// Package repeat reads a stream's events that differ from the one before in
// their text alone, which is nearly all of a long answer, without decoding
// them: the same bytes around another string mean the same but for the string.
package repeat

import "bytes"

// A Frame is an event that was decoded, as a pattern for those after it. The
// zero value matches none. It is for one goroutine.
type Frame struct{ before, after []byte }

// Learn takes an event, the bytes that begin its string (`"text":"`), and what
// the string was decoded to. The caller has made sure that nothing else in the
// event counts. It takes only what it can be sure of: mark stands in the event
// once, and in the string there is nothing to unescape.
func (f *Frame) Learn(event []byte, mark, text string) {
	f.Forget()
	// encoding/json takes a key in any case, and with escapes in it.
	if text == "" || bytes.Count(bytes.ToLower(event), []byte(mark)) != 1 || bytes.IndexByte(event, '\\') >= 0 {
		return
	}
	i := bytes.Index(event, []byte(mark)) + len(mark)
	if i < len(mark) {
		return
	}
	n := plain(event[i:])
	if n < 0 || string(event[i:i+n]) != text {
		return
	}
	f.before = append(f.before, event[:i]...)
	f.after = append(f.after, event[i+n:]...)
}

// Forget makes it match none.
func (f *Frame) Forget() { f.before, f.after = f.before[:0], f.after[:0] }

// Match returns the string of an event that is as the one learned.
func (f *Frame) Match(event []byte) (string, bool) {
	n := len(event) - len(f.before) - len(f.after)
	if len(f.before) == 0 || n <= 0 || !bytes.HasPrefix(event, f.before) || !bytes.HasSuffix(event, f.after) {
		return "", false
	}
	if plain(event[len(f.before):]) != n {
		return "", false
	}
	return string(event[len(f.before) : len(f.before)+n]), true
}

// plain is the length of a JSON string up to its closing quote, if nothing in
// it is escaped and all is ASCII; otherwise -1.
func plain(b []byte) int {
	for i, c := range b {
		switch {
		case c == '"':
			return i
		case c == '\\', c < ' ', c >= 0x80:
			return -1
		}
	}
	return -1
}
