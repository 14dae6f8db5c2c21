// Package shared lets many processes use the log of one data folder.
//
// A store such as Badger's is opened by one process. That one, the keeper,
// serves it on a unix socket; the others acquire, append, read and follow
// through the socket. When the keeper ends, well or by a kill, the next one
// that needs the log opens it and serves. Nobody is told beforehand and nobody
// is elected: the store's own lock decides.
//
// # What holds when the keeper ends
//
// A writer keeps what it was given until it is known to be durable. When the
// connection is lost it acquires the session again from whoever keeps the log
// then, compares the session's end with what it has handed in, and appends the
// rest once more: the same bytes at the same seqs are a success. So nothing
// that was acknowledged is lost, and the caller sees a pause.
//
// Between two keepers nobody serves, and a session stays its writer's all the
// same: who writes a session has a lock of the file "writers" in the data
// folder, at a place that goes by the session's id. The system drops it with
// the process, and names the process to those who ask.
//
// # The socket
//
// Its path goes by the data folder's: below $XDG_RUNTIME_DIR, or in a private
// folder in the temporary one, because a socket's path has room for about 100
// bytes. The file "socket" in the data folder names it for processes that have
// another environment. Both sides look at the other's user, and at its version.
//
// One connection carries one thing: the writing of a session, one read, one
// question. It begins with the client's [hello] and the keeper's [welcome];
// after that both sides send frames: four bytes with the length of the rest,
// big endian, a byte that says what it is, and the rest.
//
// Where there are no unix sockets with users (Windows), the log is the one
// process's that has it open.
package shared
