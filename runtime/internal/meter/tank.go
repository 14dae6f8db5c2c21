package meter

// The budgets. They are measured with BenchmarkEndless, of programs that are
// made to be slow, on wazero 1.12.0 and an x86-64 server of 2024.
const (
	// DecisionFuel is the fuel of one decision. Real programs use up a unit in
	// 0.03 to 0.2 ns, and the slowest that are made for it in 1 to 4 ns: they
	// wait for memory or code that is in no cache, 100 ns each time, and end
	// after 100 to 200 ms. Where others use up the machine's caches and its
	// memory's time, it is up to half more. A decision of a Go guest with
	// encoding/json is 1,800,000 units, a thirtieth; its first one in a fresh
	// instance is 7,400,000. One of the built-in policies is 200,000.
	DecisionFuel = 50_000_000

	// StartFuel is the fuel of a fresh instance's start: _initialize and the
	// like, which are counted apart. Go's runtime needs 3,300,000 units.
	StartFuel = 25_000_000

	// SliceFuel is the fuel after which code pauses: it lasts for a fraction of
	// a millisecond, and 2 ms where each load waits for memory. What is not cut:
	// one instruction that fills all of the memory, 20 ms, and the returns of a
	// deep recursion, 50 ms at worst. Go cannot interrupt a guest's code: all
	// others would wait for its end where the garbage collector wants them to
	// stop for a moment, or where guests have all of the processors.
	SliceFuel = 250_000

	// StackBytes is the stack of one instance. The engine's own stack is at
	// most as large, and for a moment of its growth three times. It is counted
	// carefully: real functions use a sixteenth of what they are charged, so
	// that it is enough for 4,000 calls of Go's within each other.
	StackBytes = 8 << 20
)

// A Global is a mutable global of an instance. wazero's api.MutableGlobal is
// one.
type Global interface {
	Get() uint64
	Set(v uint64)
}

// A Tank is the fuel and the stack of one instance of a rewritten module: its
// exports [FuelExport], [ReserveExport] and [StackExport]. It is for one
// goroutine at a time, which is the one that calls the instance, also in host
// functions.
type Tank struct {
	Fuel    Global // of this slice
	Reserve Global // of all slices to come
	Stack   Global
}

// Fill gives an instance its fuel and its stack. It is called before each call
// of the instance: what is left of one call is not the next one's.
func (t Tank) Fill(fuel, stack int64) {
	first := slice(fuel)
	t.Fuel.Set(uint64(first))
	t.Reserve.Set(uint64(fuel - first))
	t.Stack.Set(uint64(stack))
}

// slice is what of the fuel is given out at once.
func slice(fuel int64) int64 { return min(fuel, SliceFuel) }

// Used is how much of the fuel has been used that the tank was filled with. It
// is all of it where the fuel was out.
func (t Tank) Used(fuel int64) int64 { return min(fuel, fuel-t.left()) }

func (t Tank) left() int64 { return int64(t.Fuel.Get() + t.Reserve.Get()) }

// Charge takes fuel for a host function's work, beyond PriceHostCall: for a
// length that the guest has chosen, for one. It reports whether there is
// enough. If there is not, the function does nothing and returns, or panics:
// the guest is stopped where it looks next, and its call has failed.
func (t Tank) Charge(n int64) bool {
	if n < 0 || n > t.left() {
		t.Fuel.Set(^uint64(0))
		t.Reserve.Set(0)
		return false
	}
	t.Fuel.Set(t.Fuel.Get() - uint64(n)) // it may be less than nothing: the next slice makes up for it
	return true
}

// FreeBytes is what a host function may move, or work as long as, for the price
// of its call.
const FreeBytes = 1024

// ChargeBytes takes fuel for bytes that a host function moves: as much as the
// guest's own instructions would cost. Up to FreeBytes are free.
func (t Tank) ChargeBytes(n uint64) bool {
	return n <= FreeBytes || t.Charge(int64((n-FreeBytes)>>bytesShift))
}

// A Cause says which limit stopped a call.
type Cause string

// The causes.
const (
	CauseNone  Cause = ""      // none: how the call ended is the guest's own doing
	CauseFuel  Cause = "fuel"  // the fuel was out
	CauseStack Cause = "stack" // the stack was out
)

// Cause says why a call has ended, whatever its error is. It is asked after
// each call, also of one without an error, and before what the error says is
// believed: a guest may well trap in its own way in the few instructions
// between the end of its fuel and the next look at it.
func (t Tank) Cause() Cause {
	switch {
	case int64(t.Stack.Get()) < 0:
		return CauseStack
	case t.left() < 0:
		return CauseFuel
	}
	return CauseNone
}
