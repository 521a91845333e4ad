package transport

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"time"
)

// MemoryNetwork joins nodes of one process and does to them what networks do, on request: delay, bounded bandwidth, connections that
// break, cuts in one or both directions, partitions, flapping. What is drawn at random comes from the seed, for each connection on its
// own, so that it does not depend on how goroutines of different connections are scheduled. Time is that of package time; in a synctest
// bubble it is virtual. Nothing runs for an idle connection. Safe for concurrent use.
type MemoryNetwork struct {
	seed uint64

	mu struct {
		sync.Mutex
		closed    bool
		listeners map[string]*memoryListener
		hosts     map[string]string // of every address that was ever listened at: a cut host stays silent when it is down
		links     map[route]Link
		standard  Link
		cuts      map[route]CutMode
		dials     map[route]uint64
		lanes     map[*lane]struct{}
		flaps     map[*flap]struct{}
		changed   chan struct{} // closed when a cut changes: dials that hang look again
		port      int
	}
}

// route is one direction between two hosts.
type route struct{ from, to string }

// Link is how one direction between two hosts behaves. The zero value is perfect.
type Link struct {
	// Delay is how long every write takes to arrive, Jitter what is added at random at most. Bytes never overtake each other.
	Delay, Jitter time.Duration
	// BytesPerSecond bounds the rate of each connection; 0: none.
	BytesPerSecond int64
	// Break is the chance that a write breaks its connection (reset on both sides), 0 to 1.
	Break float64
	// RefuseDial is the chance that a dial is refused, 0 to 1.
	RefuseDial float64
}

// CutMode is how a cut shows.
type CutMode uint8

// How a cut shows.
const (
	// CutNone: no cut.
	CutNone CutMode = iota
	// CutSilent: what is sent does not arrive while the cut lasts, and connections see nothing of it; dials hang in both directions.
	// After the cut what was sent arrives, as TCP would repeat it.
	CutSilent
	// CutRefuse: connections in either direction are reset, and dials in this direction are refused.
	CutRefuse
)

// memoryWindow is how many bytes one direction of a connection holds.
const memoryWindow = 1 << 20

// memoryPacket is how many bytes arrive together where the rate is bounded.
const memoryPacket = 4 << 10

// NewMemoryNetwork makes a network. Close it to end what still runs.
func NewMemoryNetwork(seed uint64) *MemoryNetwork {
	m := &MemoryNetwork{seed: seed}
	m.mu.listeners = map[string]*memoryListener{}
	m.mu.hosts = map[string]string{}
	m.mu.links = map[route]Link{}
	m.mu.cuts = map[route]CutMode{}
	m.mu.dials = map[route]uint64{}
	m.mu.lanes = map[*lane]struct{}{}
	m.mu.flaps = map[*flap]struct{}{}
	m.mu.changed = make(chan struct{})
	return m
}

// Memory is one host's access to a MemoryNetwork.
type Memory struct {
	network *MemoryNetwork
	host    string
}

// Host returns the Transport of a host. Faults are between hosts, whatever addresses they listen at.
func (m *MemoryNetwork) Host(host string) Memory { return Memory{m, host} }

// memoryAddr is an address in a MemoryNetwork.
type memoryAddr string

func (memoryAddr) Network() string  { return "memory" }
func (a memoryAddr) String() string { return string(a) }

// Listen listens at an address, which is any text that is not in use. An address that is empty or ends in ":0" gets a free one.
func (h Memory) Listen(addr string) (net.Listener, error) {
	m := h.network
	m.mu.Lock()
	defer m.mu.Unlock()
	if addr == "" || len(addr) > 1 && addr[len(addr)-2:] == ":0" {
		m.mu.port++
		addr = fmt.Sprintf("%s:%d", h.host, m.mu.port)
	}
	switch {
	case m.mu.closed:
		return nil, opError("listen", addr, net.ErrClosed)
	case m.mu.listeners[addr] != nil:
		return nil, opError("listen", addr, syscall.EADDRINUSE)
	}
	l := &memoryListener{network: m, host: h.host, addr: memoryAddr(addr), queue: make(chan *memoryConn, 128), done: make(chan struct{})}
	m.mu.listeners[addr], m.mu.hosts[addr] = l, h.host
	return l, nil
}

// Dial connects to a listener. It takes one delay there and one back.
func (h Memory) Dial(ctx context.Context, addr string) (net.Conn, error) {
	m := h.network
	for {
		m.mu.Lock()
		l, changed, closed := m.mu.listeners[addr], m.mu.changed, m.mu.closed
		there, back := route{h.host, m.mu.hosts[addr]}, route{m.mu.hosts[addr], h.host}
		mode, backMode := m.mu.cuts[there], m.mu.cuts[back]
		link, backLink := m.linkLocked(there), m.linkLocked(back)
		m.mu.Unlock()
		switch {
		case closed:
			return nil, opError("dial", addr, net.ErrClosed)
		case ctx.Err() != nil:
			return nil, opError("dial", addr, ctx.Err())
		case mode == CutSilent || backMode == CutSilent:
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return nil, opError("dial", addr, ctx.Err())
			}
		case l == nil, mode == CutRefuse:
			return nil, opError("dial", addr, syscall.ECONNREFUSED)
		}
		rng := m.chances(there)
		if rng.Float64() < link.RefuseDial {
			return nil, opError("dial", addr, syscall.ECONNREFUSED)
		}
		if err := pause(ctx, link.draw(rng)+backLink.draw(rng)); err != nil {
			return nil, opError("dial", addr, err)
		}
		return h.connect(ctx, l, there, back, rng)
	}
}

// connect makes both ends and hands one to the listener.
func (h Memory) connect(ctx context.Context, l *memoryListener, there, back route, rng *rand.Rand) (net.Conn, error) {
	m := h.network
	out := newLane(m, there, rng.Uint64())
	in := newLane(m, back, rng.Uint64())
	m.mu.Lock()
	m.mu.port++
	local := memoryAddr(fmt.Sprintf("%s:%d", h.host, m.mu.port))
	for _, lane := range []*lane{out, in} {
		lane.link, lane.held = m.linkLocked(lane.route), m.mu.cuts[lane.route] == CutSilent
		m.mu.lanes[lane] = struct{}{}
	}
	// The dial took its time: the network may have changed.
	refused := m.mu.cuts[there] == CutRefuse || m.mu.cuts[back] == CutRefuse || m.mu.closed
	if refused {
		delete(m.mu.lanes, out)
		delete(m.mu.lanes, in)
	}
	m.mu.Unlock()
	if refused {
		return nil, opError("dial", string(l.addr), syscall.ECONNREFUSED)
	}
	near := &memoryConn{in: in, out: out, local: local, remote: l.addr}
	far := &memoryConn{in: out, out: in, local: l.addr, remote: local}
	var err error
	select {
	case <-l.done: // looked at first, so that a closed listener takes nothing
		err = syscall.ECONNREFUSED
	default:
		select {
		case l.queue <- far:
			if l.isClosed() {
				l.drain()
			}
			return near, nil
		case <-l.done:
			err = syscall.ECONNREFUSED
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	near.abort(net.ErrClosed)
	return nil, opError("dial", string(l.addr), err)
}

// chances gives the next connection of a route its own.
func (m *MemoryNetwork) chances(r route) *rand.Rand {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.dials[r]++
	return rand.New(rand.NewPCG(m.seed^sum64(m.mu.dials[r], []byte(r.from)), sum64(m.seed, []byte(r.to))))
}

func (m *MemoryNetwork) linkLocked(r route) Link {
	if link, ok := m.mu.links[r]; ok {
		return link
	}
	return m.mu.standard
}

// draw is one delay.
func (l Link) draw(rng *rand.Rand) time.Duration {
	if l.Jitter <= 0 {
		return l.Delay
	}
	return l.Delay + time.Duration(rng.Int64N(int64(l.Jitter)))
}

func opError(op, addr string, err error) error {
	return &net.OpError{Op: op, Net: "memory", Addr: memoryAddr(addr), Err: err}
}

// memoryListener takes connections to one address.
type memoryListener struct {
	network *MemoryNetwork
	host    string
	addr    memoryAddr
	queue   chan *memoryConn
	done    chan struct{}
	once    sync.Once
}

// Accept waits for a connection.
func (l *memoryListener) Accept() (net.Conn, error) {
	select {
	case <-l.done:
		return nil, opError("accept", string(l.addr), net.ErrClosed)
	default:
	}
	select {
	case c := <-l.queue:
		return c, nil
	case <-l.done:
		return nil, opError("accept", string(l.addr), net.ErrClosed)
	}
}

// Close ends Accept; connections that were not accepted are reset.
func (l *memoryListener) Close() error {
	l.once.Do(func() {
		l.network.mu.Lock()
		if l.network.mu.listeners[string(l.addr)] == l {
			delete(l.network.mu.listeners, string(l.addr))
		}
		l.network.mu.Unlock()
		close(l.done)
	})
	l.drain()
	return nil
}

// Addr is the address.
func (l *memoryListener) Addr() net.Addr { return l.addr }

func (l *memoryListener) isClosed() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// drain resets what nobody will accept.
func (l *memoryListener) drain() {
	for {
		select {
		case c := <-l.queue:
			c.abort(syscall.ECONNRESET)
		default:
			return
		}
	}
}
