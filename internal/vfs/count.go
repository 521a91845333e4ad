package vfs

import "sync/atomic"

// Counter is an FS that counts the operations on the one below it.
type Counter struct {
	FS
	ops     [opCount]atomic.Int64
	written atomic.Int64
	read    atomic.Int64
}

// Count returns fs with its operations counted when they begin, whether they
// succeed or not. Put it on the outside of Inject to count what fails as well.
func Count(fs FS) *Counter {
	c := &Counter{}
	c.FS = Inject(fs, c.note)
	return c
}

func (c *Counter) note(op Op, _ string, _ int64, n int) error {
	c.ops[op].Add(1)
	switch op {
	case OpWrite:
		c.written.Add(int64(n))
	case OpRead:
		c.read.Add(int64(n))
	}
	return nil
}

// Ops returns how many operations of the kind there were.
func (c *Counter) Ops(op Op) int64 { return c.ops[op].Load() }

// Syncs returns the number of SyncData and SyncDir together.
func (c *Counter) Syncs() int64 { return c.Ops(OpSync) + c.Ops(OpSyncDir) }

// BytesWritten returns the bytes that writes asked for.
func (c *Counter) BytesWritten() int64 { return c.written.Load() }

// BytesRead returns the bytes that reads asked for.
func (c *Counter) BytesRead() int64 { return c.read.Load() }

// Reset sets all counts to zero.
func (c *Counter) Reset() {
	for i := range c.ops {
		c.ops[i].Store(0)
	}
	c.written.Store(0)
	c.read.Store(0)
}
