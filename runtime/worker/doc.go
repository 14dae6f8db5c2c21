// Package worker runs guests in processes of their own: isolation = "process".
//
// A worker is the program itself, started again with a hidden argument. It has
// no environment, no descriptors but its standard streams, no terminal, "/" as
// its folder, and hard limits on memory, CPU time and files. On Linux it can
// gain no rights, nobody can look into it and, where the kernel has filters for
// system calls, it opens, connects, starts and signals nothing. It compiles the guest and runs it with an engine like any other;
// what breaks out of that engine is in a process that owns nothing. Host
// functions go over the same pipes, and are answered and judged outside.
//
// One worker serves one instance at a time and then, if nothing went wrong in
// it, a next one of the same policy: what it holds is that policy's alone. A
// decision that is past its deadline is ended by killing its worker, without
// asking. What a worker says is not trusted: it is read with bounds, and is held
// to the contract like what any guest says.
package worker
