package registry

// Sweep is what a pull does to the cache, with another bound.
func (c Cache) Sweep(most int64) { c.sweep(most) }
