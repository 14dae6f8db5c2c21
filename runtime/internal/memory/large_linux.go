package memory

import "syscall"

// makeLarge returns zeroes that are not the garbage collector's, and that are
// gone after freeLarge. A guest touches them page by page, and the 4,096 faults of
// 16 MiB have taken a quarter of a second, in which a collection waits for whoever
// takes them: so pages of 2 MiB are asked for. nil: the kernel gives none.
func makeLarge(capacity uint64) []byte {
	buf, err := syscall.Mmap(-1, 0, int(capacity), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil
	}
	_ = syscall.Madvise(buf, syscall.MADV_HUGEPAGE) // it is a wish
	return buf[:0]
}

// freeLarge gives back what makeLarge returned, and reports whether it had.
func freeLarge(buf []byte) bool { return syscall.Munmap(buf[:cap(buf)]) == nil }
