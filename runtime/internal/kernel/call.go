package kernel

// What a call's bytes go through: its input, its output, its error.

// Input is the handle of the input, and InputLength its length.
func (k *Kernel) Input() uint64 {
	k.begin()
	return k.own(atInput)
}

// InputLength is the length of the input.
func (k *Kernel) InputLength() uint64 {
	k.begin()
	return k.own(atInputLength)
}

// InputLoad8 reads a byte of the input; 0 behind its end.
func (k *Kernel) InputLoad8(at uint64) (byte, error) {
	if k.begin(); at >= k.own(atInputLength) {
		return 0, nil
	}
	b := k.view(uint64(uint32(k.own(atInput)+at)), 1)
	if b == nil {
		return 0, ErrBounds
	}
	return b[0], nil
}

// InputLoad64 reads eight bytes from an offset behind the handle that the input
// had when the call began, which is given.
func (k *Kernel) InputLoad64(handle, at uint64) (uint64, error) { return k.Load64(handle + at) }

// SetOutput says where the output is. A range that cannot be is let be.
func (k *Kernel) SetOutput(at, n uint64) {
	if k.begin(); k.within(at, n) {
		k.setOwn(atOutput, at)
		k.setOwn(atOutputLength, n)
	}
}

// Output is what was set as the output, a view of the memory; nil: nothing, or
// nothing that is in the memory.
func (k *Kernel) Output() []byte {
	k.begin()
	return k.view(uint64(uint32(k.own(atOutput))), uint64(uint32(k.own(atOutputLength))))
}

// OutputLength is the length that was set.
func (k *Kernel) OutputLength() uint64 { return uint64(uint32(k.own(atOutputLength))) }

// SetError says which block the error is; 0: there is none.
func (k *Kernel) SetError(handle uint64) {
	if k.begin(); handle == 0 || handle > 64 && handle < k.own(atLength)+atBlocks {
		k.setOwn(atError, handle)
	}
}

// Error is what was set as the error, of which a caller keeps no more than it
// needs.
func (k *Kernel) Error() ([]byte, error) {
	k.begin()
	handle := k.own(atError)
	if handle == 0 {
		return nil, nil
	}
	n, err := k.Length(handle)
	if err != nil {
		return nil, err
	}
	return k.view(uint64(uint32(handle)), n), nil
}

// Read is a block, a view of the memory; nil: it is none, or not in the memory.
func (k *Kernel) Read(handle uint64) ([]byte, error) {
	n, err := k.Length(handle)
	if err != nil {
		return nil, err
	}
	return k.view(uint64(uint32(handle)), n), nil
}

// Write makes a block of bytes. Its handle is 0 where there is no memory, or
// where there are no bytes.
func (k *Kernel) Write(b []byte) (uint64, error) {
	handle, err := k.Alloc(uint64(len(b)))
	if err != nil || handle == 0 {
		return 0, err
	}
	copy(k.view(handle, uint64(len(b))), b)
	return handle, nil
}
