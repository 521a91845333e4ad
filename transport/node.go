package transport

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Node is one node's end of all connections to the others. Safe for concurrent use.
type Node struct {
	opts     Options
	ctx      context.Context
	cancel   context.CancelCauseFunc
	listener net.Listener // nil if it only dials
	notes    *notifier
	stats    counters
	inbound  budget
	pullRate *throttle

	// running counts the goroutines that the Node owns.
	running sync.WaitGroup
	// stopNotes ends the notifier, after all others.
	stopNotes chan struct{}
	// joined is closed once the node belongs to a cluster.
	joined chan struct{}

	mu struct {
		sync.Mutex
		closed     bool
		cluster    ClusterID                // zero: none yet
		conns      map[net.Conn]func(error) // how to end each
		accepted   int
		handshakes int
		pulls      int
		streams    int
		links      map[int32]*link
		addresses  map[int32]string
		known      map[int32]*known
	}
	closeOnce sync.Once
	closeErr  error
}

// NewNode validates the options, listens and starts. Errors: ErrInvalidOptions, and those of Transport.Listen.
func NewNode(opts Options) (*Node, error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	n := &Node{opts: opts, notes: newNotifier(opts.OnPeerState, opts.OnEvent), stopNotes: make(chan struct{}), joined: make(chan struct{})}
	n.pullRate = newThrottle(opts.PullBytesPerSecond)
	n.inbound.max = opts.InboundBytesMax
	n.mu.conns = map[net.Conn]func(error){}
	n.mu.links = map[int32]*link{}
	n.mu.addresses = map[int32]string{}
	n.mu.known = map[int32]*known{}
	if n.mu.cluster = opts.ClusterID; n.mu.cluster != (ClusterID{}) {
		close(n.joined)
	}
	if opts.ListenAddress != "" {
		var err error
		if n.listener, err = opts.Transport.Listen(opts.ListenAddress); err != nil {
			return nil, fmt.Errorf("transport: listen: %w", err)
		}
	}
	n.ctx, n.cancel = context.WithCancelCause(context.Background())
	n.spawn(func() { n.notes.run(n.stopNotes) })
	if n.listener != nil {
		n.spawn(n.accept)
	}
	return n, nil
}

// Addr is where the Node listens, nil if it only dials.
func (n *Node) Addr() net.Addr {
	if n.listener == nil {
		return nil
	}
	return n.listener.Addr()
}

// SetAddress says where a node is, and keeps a connection for requests to it from now on. A dial that waits is tried again at once;
// dials and connections to another address of the node are ended. Its own id is left alone.
func (n *Node) SetAddress(id int32, addr string) {
	if id == n.opts.ID || id < 1 || addr == "" {
		return
	}
	n.mu.Lock()
	if n.mu.closed {
		n.mu.Unlock()
		return
	}
	moved := n.mu.addresses[id] != "" && n.mu.addresses[id] != addr
	n.mu.addresses[id] = addr
	n.mu.Unlock()
	if moved {
		n.closeOutbound(id, addr)
	}
	l, err := n.link(id)
	if err != nil {
		return // closed, or too many peers: Call says which
	}
	if moved {
		l.move()
	}
	l.retry()
}

// closeOutbound ends what was dialled to a node at other addresses than addr.
func (n *Node) closeOutbound(id int32, addr string) {
	for _, s := range n.outbound(id) {
		if s.dialled != addr {
			s.close(fmt.Errorf("%w: node %d moved from %s to %s", ErrConnLost, id, s.dialled, addr))
		}
	}
}

// Forget ends the connections to a node and drops its address and state. Its inbound connections stay: Options.Admit decides about
// those.
func (n *Node) Forget(id int32) {
	n.mu.Lock()
	l := n.mu.links[id]
	delete(n.mu.links, id)
	delete(n.mu.addresses, id)
	n.mu.Unlock()
	if l != nil {
		l.cancel()
	}
	n.closeOutbound(id, "")
}

// PeerState tells how reaching a node stands. For a node without an address the status is PeerUnknown.
func (n *Node) PeerState(id int32) PeerState {
	n.mu.Lock()
	l := n.mu.links[id]
	n.mu.Unlock()
	if l == nil {
		return PeerState{ID: id}
	}
	return l.peerState()
}

// SetPullRate changes Options.PullBytesPerSecond. Rates between 0 and 64 KiB/s are taken as 64 KiB/s, negative ones as no bound.
func (n *Node) SetPullRate(bytesPerSecond int64) {
	if bytesPerSecond < 0 {
		bytesPerSecond = 0
	}
	if bytesPerSecond > 0 {
		bytesPerSecond = max(bytesPerSecond, pullRateMin)
	}
	n.pullRate.setRate(bytesPerSecond)
}

// Close stops listening, ends all connections and waits for all goroutines, for at most Options.CloseTimeout: then callbacks of the
// caller still run and it returns ErrCloseTimeout. Further calls return the same.
func (n *Node) Close() error {
	n.closeOnce.Do(func() { n.closeErr = n.shutDown() })
	return n.closeErr
}

func (n *Node) shutDown() error {
	n.mu.Lock()
	n.mu.closed = true
	var closers []func(error)
	for _, c := range n.mu.conns {
		closers = append(closers, c)
	}
	n.mu.Unlock()
	// The listener goes first: who finds its connection reset finds the port refused.
	if n.listener != nil {
		_ = n.listener.Close()
	}
	n.cancel(ErrClosed)
	for _, c := range closers {
		c(ErrClosed)
	}
	close(n.stopNotes)
	done := make(chan struct{})
	go func() {
		n.running.Wait()
		close(done)
	}()
	timer := time.NewTimer(n.opts.CloseTimeout)
	defer timer.Stop()
	select {
	case <-done:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w after %v", ErrCloseTimeout, n.opts.CloseTimeout)
	}
}

// spawn runs f on a goroutine that Close waits for. False if the Node is closed.
func (n *Node) spawn(f func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.closed {
		return false
	}
	n.running.Go(f)
	return true
}

// closeWith calls f when ctx ends. The function it returns takes that back and returns true; if it is too late it waits for f.
func closeWith(ctx context.Context, f func()) (stop func() bool) {
	done := make(chan struct{})
	halt := context.AfterFunc(ctx, func() {
		defer close(done)
		f()
	})
	return sync.OnceValue(func() bool {
		if halt() {
			return true
		}
		<-done
		return false
	})
}

// track makes Close end a connection by end. False if the Node is closed.
func (n *Node) track(conn net.Conn, end func(error)) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.mu.closed {
		return false
	}
	n.mu.conns[conn] = end
	return true
}

func (n *Node) untrack(conn net.Conn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.mu.conns, conn)
}

func (n *Node) event(kind EventKind, peer Peer, err error) {
	n.notes.push(Event{Kind: kind, Peer: peer, Err: err})
}

// address finds where a node is.
func (n *Node) address(id int32) (string, error) {
	n.mu.Lock()
	addr := n.mu.addresses[id]
	n.mu.Unlock()
	if addr == "" && n.opts.Resolve != nil && id != n.opts.ID {
		if found, ok := n.opts.Resolve(id); ok {
			addr = found
		}
	}
	if addr == "" {
		return "", fmt.Errorf("%w: %d", ErrUnknownPeer, id)
	}
	return addr, nil
}

func newNonce() uint64 { return rand.Uint64() }
