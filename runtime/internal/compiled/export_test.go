package compiled

// SweepTo is the sweep with another bound.
func (c Cache) SweepTo(most int64) { c.sweepTo(most) }
