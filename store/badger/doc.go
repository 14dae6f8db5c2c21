// Package badger keeps the session log in a Badger database, for one process
// on one machine.
//
// # What is in a data folder
//
//	lock           the process that has the folder open
//	log/           the database: events and a head record for each session
//	bodies/        events that are too large for the database, by SHA-256
//	heads          how far each session was known to be whole, outside of the
//	               database, so that a loss inside it shows
//	manifest-copy  the database's list of tables when it was last opened or closed
//	closed         what the database consisted of when it was closed; not there
//	               while it is open
//	aside/         what the database would have deleted after damage
//	repaired/      what repairs have set aside
//	snapshots/     what the loop has made of sessions, to be deleted at will
//	sealed         in a folder that is encrypted: shows whether a key is the one
//
// Folders have mode 0700 and files 0600, whatever the umask.
//
// # How an append becomes durable
//
// Badger syncs once a transaction and does not group them, so one goroutine,
// the committer, packs all that is queued into one transaction. An append waits
// for the transaction that holds it. Relaxed events stand in the same queue and
// nobody waits for them, so that a crash loses the end of a session and never
// something in its middle. A commit that failed is never tried again: what is
// on the disk is unknown then, and the log refuses every later append with the
// first error until it is opened anew.
//
// # What is checked
//
// An append is checked against the chain of hashes before it is queued, and
// again when it is read. A head record says how many events a session has, and
// the heads file says how many it had when that was last synced: Badger opens
// without a word when the end of its own log is cut off.
package badger
