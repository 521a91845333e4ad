package billet

import (
	"context"
	"sync"
)

// memoryBudget bounds the bytes that a Producer holds. Who does not get its
// bytes at once waits in line, and each release wakes only those whose turn it is.
type memoryBudget struct {
	limit int64

	mu struct {
		sync.Mutex
		used    int64
		waiters []*budgetWaiter // in order of arrival
		closed  bool
	}
}

// budgetWaiter is one goroutine in line.
type budgetWaiter struct {
	bytes   int64
	granted chan struct{} // closed when it has its bytes or the budget closed
}

// tryAcquire takes bytes if they are free and nobody waits. More than the limit
// is given when nothing else is taken, so that one huge record can pass.
func (m *memoryBudget) tryAcquire(bytes int64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.mu.waiters) > 0 || !m.fitsLocked(bytes) {
		return false
	}
	m.mu.used += bytes
	return true
}

func (m *memoryBudget) fitsLocked(bytes int64) bool {
	return m.mu.used == 0 || m.mu.used+bytes <= m.limit
}

// acquire takes bytes, waiting for them in line until ctx ends or the budget is
// closed. Errors: ctx's own, ErrClosed.
func (m *memoryBudget) acquire(ctx context.Context, bytes int64) error {
	w := &budgetWaiter{bytes: bytes, granted: make(chan struct{})}
	m.mu.Lock()
	if m.mu.closed {
		m.mu.Unlock()
		return ErrClosed
	}
	m.mu.waiters = append(m.mu.waiters, w)
	granted := m.grantLocked()
	m.mu.Unlock()
	wakeAll(granted)
	select {
	case <-w.granted:
		return m.checkOpen()
	case <-ctx.Done():
	}
	if m.abandon(w) {
		return ctx.Err()
	}
	m.release(bytes) // granted in the meantime
	return ctx.Err()
}

func (m *memoryBudget) checkOpen() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.closed {
		return ErrClosed
	}
	return nil
}

// abandon takes w out of the line and tells whether it was still there. Those
// behind it may fit where it did not.
func (m *memoryBudget) abandon(w *budgetWaiter) bool {
	m.mu.Lock()
	found := false
	for i, other := range m.mu.waiters {
		if other == w {
			m.mu.waiters = append(m.mu.waiters[:i], m.mu.waiters[i+1:]...)
			found = true
			break
		}
	}
	granted := m.grantLocked()
	m.mu.Unlock()
	wakeAll(granted)
	return found
}

// release gives bytes back.
func (m *memoryBudget) release(bytes int64) {
	if bytes == 0 {
		return
	}
	m.mu.Lock()
	m.mu.used -= bytes
	granted := m.grantLocked()
	m.mu.Unlock()
	wakeAll(granted)
}

// grantLocked gives bytes to those at the head of the line.
func (m *memoryBudget) grantLocked() []*budgetWaiter {
	n := 0
	for n < len(m.mu.waiters) && m.fitsLocked(m.mu.waiters[n].bytes) {
		m.mu.used += m.mu.waiters[n].bytes
		n++
	}
	if n == 0 {
		return nil
	}
	granted := append([]*budgetWaiter(nil), m.mu.waiters[:n]...)
	m.mu.waiters = append(m.mu.waiters[:0], m.mu.waiters[n:]...)
	return granted
}

// close makes all waits fail, those under way and later ones.
func (m *memoryBudget) close() {
	m.mu.Lock()
	m.mu.closed = true
	waiters := m.mu.waiters
	m.mu.waiters = nil
	m.mu.Unlock()
	wakeAll(waiters)
}

// usage returns the bytes in use.
func (m *memoryBudget) usage() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.used
}

func wakeAll(waiters []*budgetWaiter) {
	for _, w := range waiters {
		close(w.granted)
	}
}

// force takes bytes even beyond the limit, for what is small and cannot wait.
func (m *memoryBudget) force(bytes int64) {
	m.mu.Lock()
	m.mu.used += bytes
	m.mu.Unlock()
}
