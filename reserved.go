package dsh

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// reservedPrefix begins the ids of sessions that are no conversations. Ids
// that a program makes begin with a time.
const reservedPrefix = "policy-"

// SharedState is the session that keeps the memory of a policy which all
// sessions share. It holds a session/start and policy/state events, and no
// turns.
func SharedState(policy string) SessionID {
	sum := sha256.Sum256([]byte(policy)) // two names may differ in what an id cannot hold
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, policy)
	return SessionID(reservedPrefix + plain[:min(len(plain), 64)] + "-" + hex.EncodeToString(sum[:6]))
}

// Reserved reports whether the session is no conversation: it is not listed,
// never the last one, and no turn is opened in it.
func (id SessionID) Reserved() bool { return strings.HasPrefix(string(id), reservedPrefix) }
