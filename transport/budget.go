package transport

import "sync/atomic"

// budget counts bytes against a bound. Taking never waits.
type budget struct {
	max    int64
	used   atomic.Int64
	parent *budget
}

// take charges n bytes here and at the parents, or nothing and returns false.
func (b *budget) take(n int64) bool {
	if b.used.Add(n) > b.max {
		b.used.Add(-n)
		return false
	}
	if b.parent != nil && !b.parent.take(n) {
		b.used.Add(-n)
		return false
	}
	return true
}

// give returns what take charged.
func (b *budget) give(n int64) {
	b.used.Add(-n)
	if b.parent != nil {
		b.parent.give(n)
	}
}
