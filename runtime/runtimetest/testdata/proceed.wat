;; Answers recover as if it were before_step.
(module
  (import "extism:host/env" "alloc" (func $alloc (param i64) (result i64)))
  (import "extism:host/env" "store_u8" (func $store_u8 (param i64 i32)))
  (import "extism:host/env" "store_u64" (func $store_u64 (param i64 i64)))
  (import "extism:host/env" "output_set" (func $output_set (param i64 i64)))
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
  (data (i32.const 0) "{\22kind\22:\22proceed\22}")
  (func (export "recover") (result i32) (call $answer (i32.const 0) (i32.const 18)))
)
