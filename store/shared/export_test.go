package shared

import "github.com/dsh-agent/dsh"

// What the tests need of the inside.

// PackHead and UnpackHead are a head on its way.
func PackHead(h dsh.Head) []byte                  { return packHead(h) }
func UnpackHead(b []byte) (h dsh.Head, err error) { return unpackHead(b) }

// Protocol is the version of what is said on the socket.
const Protocol = protocol
