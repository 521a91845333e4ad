package kafka

import (
	"context"
	"math/bits"
	"sync"

	"github.com/billetlog/billet/internal/invariants"
)

// memory is what requests may take of it: one budget for all, of which clients that
// nobody knows have a small one of their own, and requests that are large may not have
// the whole, so that those who announce much and send nothing leave room for others.
type memory struct {
	all, large, early *budget
	frameMax          int64 // nothing larger is charged
	frames            framePool
}

// largeFrame is a request that counts as large.
const largeFrame = 1 << 20

func newMemory(o *Options) *memory {
	return &memory{
		all:      newBudget(o.RequestMemoryMax),
		large:    newBudget(max(o.RequestMemoryMax-o.RequestMemoryMax/largeShare, int64(o.RequestBytesMax))),
		early:    newBudget(max(o.RequestMemoryMax/earlyShare, int64(o.EarlyRequestBytesMax))),
		frameMax: int64(o.RequestBytesMax),
	}
}

// frame is the memory of a request, and what it was charged to.
type frame struct {
	b       []byte
	memory  *memory
	charged int64
	class   int // of the pool, or -1
	early   bool
}

// take waits until there is memory for a frame. Pooled ones are those that nothing refers
// to after their release.
func (m *memory) take(ctx context.Context, size int, early, pooled bool) (*frame, error) {
	f := &frame{memory: m, class: -1, early: early}
	class := classOf(size)
	f.charged = int64(size)
	if pooled && class >= 0 {
		f.charged = min(int64(minFrame)<<class, m.frameMax)
	}
	if early {
		if err := m.early.Acquire(ctx, f.charged); err != nil {
			return nil, err
		}
	} else {
		if f.isLarge() {
			if err := m.large.Acquire(ctx, f.charged); err != nil {
				return nil, err
			}
		}
		if err := m.all.Acquire(ctx, f.charged); err != nil {
			if f.isLarge() {
				m.large.Release(f.charged)
			}
			return nil, err
		}
	}
	if pooled && class >= 0 {
		f.class, f.b = class, m.frames.get(class)[:size]
	} else {
		f.b = make([]byte, size)
	}
	return f, nil
}

// hasRoom says whether a small request and a large one would be read now.
func (m *memory) hasRoom() bool {
	for _, budget := range []*budget{m.all, m.large} {
		if !budget.TryAcquire(1) {
			return false
		}
		budget.Release(1)
	}
	return true
}

func (f *frame) isLarge() bool { return f.charged > largeFrame }

// release gives the memory back. It is called once.
func (f *frame) release() {
	if f.class >= 0 {
		invariants.Mangle(f.b)
		f.memory.frames.put(f.class, f.b)
	}
	f.b = nil
	if f.early {
		f.memory.early.Release(f.charged)
		return
	}
	f.memory.all.Release(f.charged)
	if f.isLarge() {
		f.memory.large.Release(f.charged)
	}
}

// The sizes of frames that are kept for the next request: powers of two.
const (
	minFrame     = 4 << 10
	frameClasses = 12 // up to 8 MiB
)

// framePool keeps frames by size.
type framePool struct {
	classes [frameClasses]sync.Pool
}

// classOf is the smallest class that a frame fits, or -1.
func classOf(size int) int {
	class := bits.Len(uint(max(size, minFrame)-1) / minFrame)
	if class >= frameClasses {
		return -1
	}
	return class
}

func (p *framePool) get(class int) []byte {
	if b, ok := p.classes[class].Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, minFrame<<class)
}

// recycle keeps a buffer that came from the pool or took the place of one.
func (p *framePool) recycle(b []byte) {
	if class := min(bits.Len(uint(cap(b)/minFrame))-1, frameClasses-1); class >= 0 {
		p.put(class, b)
	}
}

func (p *framePool) put(class int, b []byte) {
	b = b[:cap(b)]
	p.classes[class].Put(&b)
}
