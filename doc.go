// Package dsh is the vocabulary of the runtime: the nouns in which its rooms
// meet, so that no room has to import another.
//
// A session is a log of events. A turn starts with a user's message and is
// made of steps; a step ends in one assistant message and the results of its
// tool calls, and is made of attempts; an attempt is one wire request. When an
// attempt fails, its [Failure] is put to the policies of a [Waterfall], and
// the first that answers "retry" gets another attempt after a wait that is in
// the log before it begins. Everything that a program knows of a session is a
// fold of its events.
//
// The package depends on the standard library alone and holds no state.
package dsh
