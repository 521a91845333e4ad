package transport

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// caller is the asking end of a connection for requests.
type caller struct {
	s *stream

	mu struct {
		sync.Mutex
		lastID  uint64
		waiting map[uint64]chan reply
		err     error // why no more answers come
	}
}

// reply is what came for a request.
type reply struct {
	payload []byte
	err     error
}

func newCaller(s *stream) *caller {
	c := &caller{s: s}
	c.mu.waiting = map[uint64]chan reply{}
	return c
}

// Call sends a request to a node and returns the answer, which is the caller's. The payload may be changed when Call returns. The rest of
// ctx's time travels along, in milliseconds, and its end cancels the handler. It waits for a first connection, but not for a peer that
// was just found unreachable.
//
// Errors: ErrUnknownPeer, ErrUnreachable (with the cause, maybe a *RefusedError), ErrQueueFull, ErrBusy, ErrNotServed: the request did not
// run. ErrConnLost, ErrTimeout, ctx's error, ErrClosed: it may have run. ErrTooLarge: it is too large and did not run, or its answer is
// and it ran. *RemoteError: it ran and failed.
func (n *Node) Call(ctx context.Context, id int32, payload []byte) ([]byte, error) {
	if len(payload) > n.opts.RequestBytesMax {
		return nil, fmt.Errorf("%w: a request of %d bytes, at most %d are allowed", ErrTooLarge, len(payload), n.opts.RequestBytesMax)
	}
	if err := n.noCluster(); err != nil {
		return nil, err
	}
	l, err := n.link(id)
	if err != nil {
		return nil, err
	}
	c, err := l.wait(ctx)
	if err != nil {
		return nil, err
	}
	n.stats.calls.Add(1)
	return c.call(ctx, payload)
}

func (c *caller) call(ctx context.Context, payload []byte) ([]byte, error) {
	limit, err := timeLeft(ctx)
	if err != nil {
		return nil, err
	}
	id, answer, err := c.register()
	if err != nil {
		return nil, err
	}
	if err := c.s.out.add(header{kind: frameRequest, id: id, arg: limit}, payload); err != nil {
		c.forget(id)
		if errors.Is(err, ErrQueueFull) {
			return nil, err
		}
		return nil, notSent(err)
	}
	select {
	case r := <-answer:
		return r.payload, r.err
	case <-ctx.Done():
		if c.forget(id) {
			_ = c.s.out.add(header{kind: frameCancel, id: id}, nil)
		}
		return nil, ctx.Err()
	}
}

// notSent makes an error of a connection that ended before a request was on it. It is not ErrConnLost, which leaves that open.
func notSent(err error) error {
	if errors.Is(err, ErrClosed) {
		return ErrClosed
	}
	return fmt.Errorf("%w: %v", ErrUnreachable, err)
}

// timeLeft is the rest of ctx's time in ms, rounded up; 0 if it has no end.
func timeLeft(ctx context.Context) (uint32, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return 0, nil
	}
	left := time.Until(deadline)
	if left <= 0 {
		return 0, context.DeadlineExceeded
	}
	return uint32(min((left+time.Millisecond-1)/time.Millisecond, math.MaxUint32)), nil
}

func (c *caller) register() (uint64, chan reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.err != nil {
		return 0, nil, notSent(c.mu.err)
	}
	if len(c.mu.waiting) >= c.s.node.opts.RequestsMax {
		return 0, nil, fmt.Errorf("%w: %d calls wait for node %d", ErrQueueFull, len(c.mu.waiting), c.s.peer.ID)
	}
	c.mu.lastID++
	answer := make(chan reply, 1)
	c.mu.waiting[c.mu.lastID] = answer
	return c.mu.lastID, answer, nil
}

// forget tells whether the answer was still waited for.
func (c *caller) forget(id uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.mu.waiting[id]
	delete(c.mu.waiting, id)
	return ok
}

// take returns who waits for an answer and forgets it. An id that was never given out is an error.
func (c *caller) take(id uint64) (chan reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if id == 0 || id > c.mu.lastID {
		return nil, fmt.Errorf("%w: an answer to request %d, which was never made", ErrBadFrame, id)
	}
	answer := c.mu.waiting[id]
	delete(c.mu.waiting, id)
	return answer, nil
}

// run hands out answers until the connection ends, and returns why.
func (c *caller) run() error {
	err := c.s.read(c.receive)
	if !errors.Is(err, ErrConnLost) {
		err = fmt.Errorf("%w: %w", ErrConnLost, err)
	}
	c.mu.Lock()
	waiting := c.mu.waiting
	c.mu.err, c.mu.waiting = err, nil
	c.mu.Unlock()
	for _, answer := range waiting {
		answer <- reply{err: err}
	}
	return err
}

func (c *caller) receive(h header) error {
	answer, err := c.take(h.id)
	if err != nil {
		return err
	}
	if answer == nil { // the caller gave up
		return c.s.in.discard(h)
	}
	payload, err := c.s.in.payload(h, nil)
	if err != nil {
		answer <- reply{err: fmt.Errorf("%w: %w", ErrConnLost, err)}
		return err
	}
	if h.kind == frameError {
		answer <- reply{err: answerError(c.s.peer.ID, answerCode(h.arg), payload)}
		return nil
	}
	answer <- reply{payload: payload}
	return nil
}
