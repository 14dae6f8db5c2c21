// Package peers measures this project beside what else could have been taken. A
// decision on its engines stands beside wazero with nothing around it, a
// JavaScript interpreter in the process, a plugin process over gRPC, and a
// process a decision; a durable append to its log beside bbolt, SQLite, a file
// of JSON lines a session, and a plain file with group commit. It is a module of
// its own, so that the project's own stays lean, and it is a benchmark and
// nothing else:
//
//	go test -run '^$' -bench .
package peers
