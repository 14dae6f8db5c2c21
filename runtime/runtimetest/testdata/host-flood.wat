;; Calls a host function without an end, with arguments that are none: handles
;; of nothing, of the inside of a block and of what lies beyond all memory.
(module
  (import "extism:host/env" "alloc" (func $alloc (param i64) (result i64)))
  (import "dsh:policy/v1" "log_read" (func $log_read (param i64) (result i64)))
  (memory (export "memory") 1)
  (func (export "recover") (result i32)
    (loop $again
      (drop (call $log_read (i64.const 0)))
      (drop (call $log_read (i64.add (call $alloc (i64.const 64)) (i64.const 7))))
      (drop (call $log_read (i64.const 4294967295)))
      (drop (call $log_read (i64.const 4294967297)))
      (drop (call $log_read (i64.const -1)))
      (br $again))
    (i32.const 0))
)
