;; Its code is not valid: recover leaves nothing on the stack.
(module
  (func (export "recover") (result i32))
)
