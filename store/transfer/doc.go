// Package transfer brings sessions from one log into another, byte for byte:
// as lines of JSON, and as a backup of everything.
//
// Lines are what the log holds. A line belongs to the session of the last
// session/start above it, so that the lines of several sessions may stand
// behind each other. Whatever a newer version wrote comes through unchanged.
//
// A backup is a tar archive, compressed with gzip:
//
//	backup.json               {"format":1,"at":…}
//	sessions/ID/000001.jsonl  a session's lines, in parts of some MiB
//	files/NAME/…              the files of the folders that go with the log
//	sums                      a SHA-256 and a name for each of these, in their order
//
// The sums come last, so that a backup that was cut off has none.
//
// What comes in is read twice: the first time it is held to its sums, to the
// chain of hashes and to what the log has already, and nothing is written
// unless all of it is good.
package transfer
