package kafka

import (
	"context"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"
)

// budget is memory that many share, and what is known of it.
type budget struct {
	most   int64
	places *semaphore.Weighted

	used, waiting atomic.Int64
	waits         atomic.Uint64
	waited        atomic.Int64 // nanoseconds
}

func newBudget(most int64) *budget {
	return &budget{most: most, places: semaphore.NewWeighted(most)}
}

// Acquire waits until there are n bytes.
func (b *budget) Acquire(ctx context.Context, n int64) error {
	if b.TryAcquire(n) {
		return nil
	}
	begin := time.Now()
	b.waits.Add(1)
	b.waiting.Add(1)
	err := b.places.Acquire(ctx, n)
	b.waiting.Add(-1)
	b.waited.Add(int64(time.Since(begin)))
	if err == nil {
		b.used.Add(n)
	}
	return err
}

// TryAcquire takes n bytes if they are there now, and nobody waits.
func (b *budget) TryAcquire(n int64) bool {
	if !b.places.TryAcquire(n) {
		return false
	}
	b.used.Add(n)
	return true
}

// Release gives n bytes back.
func (b *budget) Release(n int64) {
	b.used.Add(-n)
	b.places.Release(n)
}
