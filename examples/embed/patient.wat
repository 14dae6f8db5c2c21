;; A policy in text: whatever failed is tried again after 200 ms, three times.
;; It speaks Extism's kernel ABI and needs nothing else.
;;
;;   wat2wasm patient.wat -o patient.wasm
(module
  (import "extism:host/env" "alloc" (func $alloc (param i64) (result i64)))
  (import "extism:host/env" "store_u8" (func $store (param i64 i32)))
  (import "extism:host/env" "output_set" (func $output (param i64 i64)))
  (memory (export "memory") 1)
  (data (i32.const 0) "{\"kind\":\"retry\",\"delayMs\":200,\"maxRetries\":3,\"reason\":\"patience\"}")
  (func (export "recover") (result i32)
    (local $at i64) (local $i i32)
    (local.set $at (call $alloc (i64.const 65)))
    (loop $next
      (call $store
        (i64.add (local.get $at) (i64.extend_i32_u (local.get $i)))
        (i32.load8_u (local.get $i)))
      (local.set $i (i32.add (local.get $i) (i32.const 1)))
      (br_if $next (i32.lt_u (local.get $i) (i32.const 65))))
    (call $output (local.get $at) (i64.const 65))
    (i32.const 0)))
