;; Retries after as many ms as WASI's clock is past the start of its hour, or
;; traps if its two clocks differ.
(module
  (import "extism:host/env" "alloc" (func $alloc (param i64) (result i64)))
  (import "extism:host/env" "store_u8" (func $store_u8 (param i64 i32)))
  (import "extism:host/env" "store_u64" (func $store_u64 (param i64 i64)))
  (import "extism:host/env" "output_set" (func $output_set (param i64 i64)))
  (import "wasi_snapshot_preview1" "clock_time_get" (func $clock (param i32 i64 i32) (result i32)))
  (memory (export "memory") 1)
  ;; Copies bytes of the module's memory into a block of the kernel's.
  (func $block (param $at i32) (param $n i32) (result i64) (local $b i64) (local $i i32)
    (local.set $b (call $alloc (i64.extend_i32_u (local.get $n))))
    (block $tail
      (loop $words
        (br_if $tail (i32.gt_u (i32.add (local.get $i) (i32.const 8)) (local.get $n)))
        (call $store_u64
          (i64.add (local.get $b) (i64.extend_i32_u (local.get $i)))
          (i64.load (i32.add (local.get $at) (local.get $i))))
        (local.set $i (i32.add (local.get $i) (i32.const 8)))
        (br $words)))
    (block $done
      (loop $copy
        (br_if $done (i32.ge_u (local.get $i) (local.get $n)))
        (call $store_u8
          (i64.add (local.get $b) (i64.extend_i32_u (local.get $i)))
          (i32.load8_u (i32.add (local.get $at) (local.get $i))))
        (local.set $i (i32.add (local.get $i) (i32.const 1)))
        (br $copy)))
    (local.get $b))
  (func $answer (param $at i32) (param $n i32) (result i32)
    (call $output_set (call $block (local.get $at) (local.get $n)) (i64.extend_i32_u (local.get $n)))
    (i32.const 0))
  ;; Writes a number's decimal digits before $end, and returns where they begin.
  (func $decimal (param $v i64) (param $end i32) (result i32)
    (loop $l
      (local.set $end (i32.sub (local.get $end) (i32.const 1)))
      (i32.store8 (local.get $end) (i32.add (i32.const 0x30) (i32.wrap_i64 (i64.rem_u (local.get $v) (i64.const 10)))))
      (local.set $v (i64.div_u (local.get $v) (i64.const 10)))
      (br_if $l (i64.ne (local.get $v) (i64.const 0))))
    (local.get $end))
  ;; Retries after so many ms.
  (data (i32.const 1000) "{\22kind\22:\22retry\22,\22delayMs\22:                    }")
  (func $retry (param $v i64) (result i32)
    (drop (call $decimal (local.get $v) (i32.const 1045)))
    (call $answer (i32.const 1000) (i32.const 47)))
  (func (export "recover") (result i32)
    (drop (call $clock (i32.const 0) (i64.const 1) (i32.const 0)))
    (drop (call $clock (i32.const 1) (i64.const 1) (i32.const 8)))
    (if (i64.ne (i64.load (i32.const 0)) (i64.load (i32.const 8))) (then unreachable))
    (call $retry (i64.rem_u (i64.div_u (i64.load (i32.const 0)) (i64.const 1000000)) (i64.const 3600000))))
)
