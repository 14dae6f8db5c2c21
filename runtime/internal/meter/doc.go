// Package meter writes fuel and stack limits into a WebAssembly module, so
// that its code stops by itself, on every engine, at the same place every run.
// An engine's own ways to stop code look at loops only, or cannot stop it at
// all.
//
// [Rewrite] takes a module that package wasm has decoded and adds three globals,
// which the host sees as the exports [FuelExport], [ReserveExport] and
// [StackExport]. The module's own code cannot name them. A [Tank] works with both; a host whose
// library hides globals can have functions instead ([Options]).
//
// # Fuel
//
// Each straight run of code is charged what its instructions cost before it
// runs. A run begins where control flow comes together or comes apart, at the
// head of a loop, and at the beginning of a function. Where the fuel is below
// zero, the code traps: it looks at the beginning of every function, at the
// head of every loop, before every call of the host, before every instruction
// whose work depends on a number, and at the end of every exported function.
// So nothing reaches the host, and no call ends in success, on fuel that is
// not there. Between two looks there is never more than the rest of the
// functions that are on the stack, each gone through once, and of these there
// is an eighth of the stack's bytes in instructions, at most: a millisecond, or
// 50 where each of them waits for memory.
//
// The prices are the Price… constants. Instructions without a price of their
// own cost 1, and those of which no code is made (block, loop, else, end, nop)
// cost nothing. Prices follow the time that an instruction takes at worst, so
// that fuel bounds time: see [DecisionFuel].
//
// # Pauses
//
// No engine can interrupt compiled code, and Go's scheduler and its garbage
// collector cannot either: a program that runs for 100 ms would have all others
// wait for it wherever the collector wants everybody to stop. So fuel is given
// out in slices ([SliceFuel]). Where the code looks, at the head of a loop, at
// the beginning of a function that calls others, and at an instruction whose work
// depends on a number, and the slice is out, it calls a function that is added:
// that gives out the next slice, and grows the memory by nothing, which leaves
// the compiled code for the engine's own, in Go, and comes back. A module
// without a memory is given one, of no pages. Where the fuel ends does not
// depend on the slices.
//
// # Stack
//
// A function that calls others is charged its frame while it runs: 8 bytes for
// each value that may have to be kept over a call, which is an upper bound of
// what wazero's compiler uses. A function that calls none costs nothing: only
// one of them runs at a time.
//
// # What stays as it was
//
// Results, traps and the contents of memory are those of the plain module,
// until fuel or stack is out. The most that memory and tables may grow to is
// lowered to what is granted. The sections "name" and "dsh.policy" are kept, and
// other custom sections are left out. Where a module has very many segments of
// data, those that touch or nearly do are joined, so that an instance is made
// sooner; its memory begins the same.
package meter
