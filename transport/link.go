package transport

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"
)

// link keeps the connection for requests to one peer: it dials, runs the connection, and dials again.
type link struct {
	node   *Node
	id     int32
	ctx    context.Context
	cancel context.CancelFunc
	// kick has a token when a wait between dials shall end.
	kick chan struct{}

	mu struct {
		sync.Mutex
		state   PeerState
		caller  *caller       // nil while there is no connection
		dialled bool          // the dial that matters to those who wait has come to an end
		changed chan struct{} // closed when caller or dialled changes
		abort   func()        // ends the dial under way and the connection it leads to
	}
}

// link returns a node's link, made if there is an address for it.
func (n *Node) link(id int32) (*link, error) {
	n.mu.Lock()
	l := n.mu.links[id]
	n.mu.Unlock()
	if l != nil {
		return l, nil
	}
	if _, err := n.address(id); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.mu.links[id]; l != nil {
		return l, nil
	}
	if n.mu.closed {
		return nil, ErrClosed
	}
	if len(n.mu.links) >= n.opts.PeersMax {
		return nil, fmt.Errorf("%w: %d peers", ErrBusy, len(n.mu.links))
	}
	l = &link{node: n, id: id, kick: make(chan struct{}, 1)}
	l.ctx, l.cancel = context.WithCancel(n.ctx)
	l.mu.state.ID = id
	l.mu.changed = make(chan struct{})
	n.mu.links[id] = l
	n.running.Go(l.run)
	return l, nil
}

// retryLink dials a node at once that is evidently there.
func (n *Node) retryLink(id int32) {
	n.mu.Lock()
	l := n.mu.links[id]
	n.mu.Unlock()
	if l != nil {
		l.retry()
	}
}

// retry ends a wait between dials.
func (l *link) retry() {
	l.mu.Lock()
	idle := l.mu.caller == nil
	l.mu.dialled = l.mu.dialled && !idle
	l.mu.Unlock()
	if !idle {
		return
	}
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

// dyingDials is how often a peer that reset its connection, and then resets what dials it, is dialled again after this part of BackoffMin:
// the listener of a process that is killed outlives its connections by an instant, and only when it refuses is the process known to be gone.
const dyingDials = 8

// run is the life of the link. It begins once the node belongs to a cluster.
func (l *link) run() {
	select {
	case <-l.node.joined:
	case <-l.ctx.Done():
	}
	opts := &l.node.opts
	wait, dying := opts.BackoffMin, 0
	for l.ctx.Err() == nil {
		attempt, abort := context.WithCancel(l.ctx)
		l.setAbort(abort)
		s, err := l.node.dial(attempt, l.id, KindRequests)
		aborted := attempt.Err() != nil
		if err != nil {
			abort()
			if aborted { // the link ends, or the node has moved
				continue
			}
			l.failed(err)
			if dying > 0 && isReset(err) {
				dying--
				l.idle(opts.BackoffMin / dyingDials)
				continue
			}
			l.idle(wait)
			wait = min(2*wait, opts.BackoffMax)
			continue
		}
		began := time.Now()
		dying = 0
		if l.serve(s) {
			dying = dyingDials
		}
		abort()
		// A connection that stood is dialled again at once; one that fell at once is not.
		if time.Since(began) > opts.BackoffMin {
			wait = opts.BackoffMin
			continue
		}
		l.idle(wait)
		wait = min(2*wait, opts.BackoffMax)
	}
	l.cancel()
	l.set(nil, true, PeerState{ID: l.id, Err: ErrClosed}, false)
}

func (l *link) setAbort(abort func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.abort = abort
}

// move ends a dial that is under way to where the node was.
func (l *link) move() {
	l.mu.Lock()
	abort := l.mu.abort
	l.mu.Unlock()
	if abort != nil {
		abort()
	}
}

// idle waits between dials, less up to a half at random, or until kicked.
func (l *link) idle(wait time.Duration) {
	timer := time.NewTimer(wait - rand.N(wait/2+1))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.kick:
	case <-l.ctx.Done():
	}
}

// serve runs a connection to its end and tells whether that was a reset.
func (l *link) serve(s *stream) (reset bool) {
	defer l.node.leave(s)
	c := newCaller(s)
	if !s.start() {
		s.close(ErrClosed)
		return false
	}
	l.set(c, true, PeerState{ID: l.id, Status: PeerReachable, Incarnation: s.peer.Incarnation}, true)
	err := c.run()
	state := PeerState{ID: l.id, Status: PeerLost, Reset: isReset(err), Incarnation: s.peer.Incarnation, Err: err}
	l.set(nil, false, state, l.ctx.Err() == nil)
	return state.Reset
}

// failed records a dial that failed.
func (l *link) failed(err error) {
	before := l.peerState()
	state := PeerState{ID: l.id, Status: statusOf(err), Reset: before.Reset, Incarnation: before.Incarnation, Err: err}
	same := state.Status == before.Status && state.Status != PeerRejected
	l.set(nil, true, state, !same)
}

// set changes what callers see.
func (l *link) set(c *caller, dialled bool, state PeerState, report bool) {
	l.mu.Lock()
	l.mu.caller, l.mu.dialled, l.mu.state = c, dialled, state
	close(l.mu.changed)
	l.mu.changed = make(chan struct{})
	l.mu.Unlock()
	if report {
		l.node.notes.push(state)
	}
}

func (l *link) peerState() PeerState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.state
}

// wait returns the connection. It waits for a dial that is under way, until ctx ends, but not for one that follows a failed one.
func (l *link) wait(ctx context.Context) (*caller, error) {
	for {
		l.mu.Lock()
		c, dialled, state, changed := l.mu.caller, l.mu.dialled, l.mu.state, l.mu.changed
		l.mu.Unlock()
		switch {
		case c != nil:
			return c, nil
		case l.ctx.Err() != nil:
			return nil, ErrClosed
		case dialled:
			return nil, state.Err // wraps ErrUnreachable: only a failed dial leaves it so
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-l.ctx.Done():
			return nil, ErrClosed
		}
	}
}
