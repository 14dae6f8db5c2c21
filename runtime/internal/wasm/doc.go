// Package wasm reads WebAssembly modules and holds them to limits before an
// engine sees them, since an engine's compiler cannot be stopped, and a small
// module can keep it busy for minutes or make it ask for gigabytes.
//
// [Decode] parses a module and holds it to the Max… limits. [Verify] does so
// too, and holds it to [Rules]: which functions it may import, what its
// exports have to be, no start function. What is refused is a *[Refusal],
// which names the rule, the function and the figure.
//
// What is accepted is WebAssembly 2.0 without SIMD, with one memory. The
// package knows every instruction, and refuses a module with one that it does
// not know. It checks that indices exist, that blocks are whole, and that
// operands are enough; it does not check that types fit, which the engine does
// when it compiles. So a module that has been decoded can be rewritten, and the
// engine's refusal of one whose types do not fit stays a refusal.
package wasm
