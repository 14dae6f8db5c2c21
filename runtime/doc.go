// Package runtime runs recovery policies: it reads a guest, holds it to the
// contract of hostabi before anything of it runs, compiles it, and gives it a
// fresh instance for each decision, within limits. Whatever a guest does, the
// worst that comes of it is a *dsh.Fault, which delegates.
//
// The room around it: [Engine] is what executes WebAssembly, and the packages
// beneath this one that implement it (runtime/native, runtime/extism) are the
// only ones that know an engine's library. A [Set] is the waterfall that a
// program decides with.
//
// A Set is what its specs list and, before that, what else is in the policies
// [Folder], which it watches from the first time on that somebody asks for its
// policies. A new file is read when it is at rest, verified, compiled, warmed and
// asked for its opinion of its config; only then does it take its place. What
// fails leaves the one before, and is an [Entry] with a [Refusal]. Whoever holds
// an older list can still ask what is in it: a version is freed after its last
// decision.
package runtime
