package replication

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Close hands over what this node leads, for a second at most, stops everything, saves every fold, and leaves the files clean: the next open replays nothing. It gives up waiting for Raft when
// ctx ends. A second Close waits for the first and returns nil.
func (h *Host) Close(ctx context.Context) error {
	h.mu.Lock()
	if h.mu.closed {
		h.mu.Unlock()
		select {
		case <-h.done:
		case <-ctx.Done():
		}
		return nil
	}
	h.mu.closed = true
	h.mu.Unlock()
	defer close(h.done)
	h.HandOver(ctx) // spares the other nodes an election
	for _, p := range h.Partitions() {
		p.loseLeadership(fmt.Errorf("%w: %s: closed while the batch was in flight", ErrAmbiguous, p.name()), StateClosed, nil)
	}
	h.cancel()
	h.elections.close()
	err := h.awaitOps(ctx)
	err = errors.Join(err, h.guard.close(ctx))
	h.mu.Lock()
	h.mu.over = true
	h.mu.Unlock()
	h.tasks.Wait()
	unsubscribeRaftLog(h)
	return errors.Join(err, h.closeReplicas(err == nil), h.closeJournal())
}

// awaitOps waits for the calls that began before Close did.
func (h *Host) awaitOps(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.ops.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: a call that changes partitions did not end: %w", ErrFailed, ctx.Err())
	}
}

// closeReplicas checkpoints and closes all logs, several at a time.
func (h *Host) closeReplicas(clean bool) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	slots := make(chan struct{}, keeperParallel)
	for _, p := range h.Partitions() {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := p.close(clean); err != nil {
				mu.Lock()
				errs = append(errs, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
