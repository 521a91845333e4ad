package transport

import (
	"context"
	"sync"
	"time"
)

// throttle bounds a rate. Time that was not used is lost, so there are no bursts.
type throttle struct {
	mu struct {
		sync.Mutex
		rate int64 // bytes/s, 0: no bound
		next time.Time
	}
}

func newThrottle(rate int64) *throttle {
	t := &throttle{}
	t.mu.rate = rate
	return t
}

func (t *throttle) setRate(rate int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.rate, t.mu.next = rate, time.Time{}
}

func (t *throttle) rate() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.rate
}

// reserve books n bytes and returns how long to wait before sending them.
func (t *throttle) reserve(n int64) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.rate <= 0 {
		return 0
	}
	now := time.Now()
	if t.mu.next.Before(now) {
		t.mu.next = now
	}
	wait := t.mu.next.Sub(now)
	t.mu.next = t.mu.next.Add(time.Duration(float64(n) / float64(t.mu.rate) * float64(time.Second)))
	return wait
}

// wait books n bytes and waits for their time.
func (t *throttle) wait(ctx context.Context, n int64) error {
	return pause(ctx, t.reserve(n))
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
