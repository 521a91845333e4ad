package transport

import (
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// lane is one direction of a connection: what was written, each piece with the time at which it arrives.
type lane struct {
	network *MemoryNetwork
	route   route

	mu      sync.Mutex
	rng     *rand.Rand
	link    Link
	held    bool // by a silent cut
	pieces  []piece
	size    int
	last    time.Time // when the last piece arrives, or the line is free
	writeBy time.Time
	readBy  time.Time
	closed  bool  // by the writer: io.EOF after the pieces
	gone    bool  // by the reader: it reads no more
	broken  error // ends both sides at once
	waiters int
	changed chan struct{}
}

// piece is what one write sent.
type piece struct {
	data []byte
	at   time.Time // zero: at once
}

func newLane(m *MemoryNetwork, r route, seed uint64) *lane {
	return &lane{network: m, route: r, rng: rand.New(rand.NewPCG(seed, 0)), changed: make(chan struct{})}
}

// change runs f and wakes all who wait.
func (l *lane) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	l.wakeLocked()
}

func (l *lane) wakeLocked() {
	if l.waiters > 0 {
		close(l.changed)
		l.changed = make(chan struct{})
		l.waiters = 0
	}
}

// waitLocked waits for a change, at most until the earlier of two times that are not zero. l.mu is released meanwhile.
func (l *lane) waitLocked(a, b time.Time) {
	l.waiters++
	changed := l.changed
	l.mu.Unlock()
	defer l.mu.Lock()
	until := a
	if until.IsZero() || !b.IsZero() && b.Before(a) {
		until = b
	}
	if until.IsZero() {
		<-changed
		return
	}
	timer := time.NewTimer(time.Until(until))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	}
}

func passed(t time.Time) bool { return !t.IsZero() && !time.Now().Before(t) }

// read takes bytes that have arrived.
func (l *lane) read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		var next time.Time
		switch {
		case l.gone:
			return 0, net.ErrClosed
		case passed(l.readBy):
			return 0, os.ErrDeadlineExceeded
		case l.held:
		case l.broken != nil:
			return 0, l.broken
		case len(p) == 0:
			return 0, nil
		case len(l.pieces) > 0:
			if next = l.pieces[0].at; next.IsZero() || passed(next) {
				return l.takeLocked(p), nil
			}
		case l.closed:
			if next = l.last; next.IsZero() || passed(next) {
				return 0, io.EOF
			}
		}
		l.waitLocked(next, l.readBy)
	}
}

// takeLocked moves what has arrived to p.
func (l *lane) takeLocked(p []byte) int {
	n := 0
	for n < len(p) && len(l.pieces) > 0 {
		first := &l.pieces[0]
		if !first.at.IsZero() && !passed(first.at) {
			break
		}
		k := copy(p[n:], first.data)
		n += k
		first.data = first.data[k:]
		if len(first.data) == 0 {
			*first = piece{}
			l.pieces = l.pieces[1:]
		}
	}
	l.size -= n
	l.wakeLocked()
	return n
}

// write puts bytes on their way, as many at a time as the window has room for.
func (l *lane) write(p []byte) (n int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		switch {
		case l.closed:
			return n, net.ErrClosed
		case l.broken != nil && !l.held:
			return n, l.broken
		case l.gone && !l.held:
			return n, syscall.EPIPE
		case passed(l.writeBy):
			return n, os.ErrDeadlineExceeded
		case len(p) == 0:
			return n, nil
		}
		if room := memoryWindow - l.size; room > 0 {
			k := min(room, len(p))
			if l.link.BytesPerSecond > 0 {
				k = min(k, memoryPacket)
			}
			l.putLocked(p[:k])
			p, n = p[k:], n+k
			continue
		}
		l.waitLocked(l.writeBy, time.Time{})
	}
}

// putLocked appends a piece, at the time at which it arrives.
func (l *lane) putLocked(p []byte) {
	var at time.Time
	if l.link.Delay > 0 || l.link.Jitter > 0 || l.link.BytesPerSecond > 0 {
		at = time.Now().Add(l.link.draw(l.rng))
		if at.Before(l.last) {
			at = l.last
		}
		if l.link.BytesPerSecond > 0 {
			at = at.Add(time.Duration(float64(len(p)) / float64(l.link.BytesPerSecond) * float64(time.Second)))
		}
		l.last = at
	}
	l.pieces = append(l.pieces, piece{append([]byte(nil), p...), at})
	l.size += len(p)
	l.wakeLocked()
}

// chance tells whether a write breaks its connection.
func (l *lane) chance() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.link.Break > 0 && l.rng.Float64() < l.link.Break
}

// breakWith ends both sides at once; what is on its way is lost.
func (l *lane) breakWith(err error) {
	l.change(func() {
		if l.broken == nil {
			l.broken = err
		}
		l.pieces, l.size = nil, 0
	})
}

// finishedLocked tells whether faults have nothing to do with the lane any more.
func (l *lane) finishedLocked() bool { return !l.held && (l.broken != nil || l.closed && l.gone) }

// memoryConn is one end of a connection.
type memoryConn struct {
	in, out       *lane
	local, remote memoryAddr
}

// Read reads bytes that have arrived.
func (c *memoryConn) Read(p []byte) (int, error) {
	n, err := c.in.read(p)
	return n, c.wrap("read", err)
}

// Write returns when the bytes are on their way.
func (c *memoryConn) Write(p []byte) (int, error) {
	if c.out.chance() {
		c.abort(syscall.ECONNRESET)
	}
	n, err := c.out.write(p)
	return n, c.wrap("write", err)
}

func (c *memoryConn) wrap(op string, err error) error {
	if err == nil || err == io.EOF {
		return err
	}
	return &net.OpError{Op: op, Net: "memory", Source: c.local, Addr: c.remote, Err: err}
}

// Close ends both directions. The other side reads what is on its way, and then the end.
func (c *memoryConn) Close() error {
	c.out.change(func() { c.out.closed = true })
	c.in.change(func() { c.in.gone = true })
	c.forget()
	return nil
}

// abort breaks both directions.
func (c *memoryConn) abort(err error) {
	c.in.breakWith(err)
	c.out.breakWith(err)
	c.forget()
}

// forget drops lanes that both sides are done with, so that faults have nothing to do with them.
func (c *memoryConn) forget() {
	m := c.in.network
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range []*lane{c.in, c.out} {
		l.mu.Lock()
		if l.finishedLocked() {
			delete(m.mu.lanes, l)
		}
		l.mu.Unlock()
	}
}

// LocalAddr is this end's address.
func (c *memoryConn) LocalAddr() net.Addr { return c.local }

// RemoteAddr is the other end's address.
func (c *memoryConn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets both deadlines.
func (c *memoryConn) SetDeadline(t time.Time) error {
	_ = c.SetReadDeadline(t)
	return c.SetWriteDeadline(t)
}

// SetReadDeadline ends reads at t.
func (c *memoryConn) SetReadDeadline(t time.Time) error {
	c.in.change(func() { c.in.readBy = t })
	return nil
}

// SetWriteDeadline ends writes at t.
func (c *memoryConn) SetWriteDeadline(t time.Time) error {
	c.out.change(func() { c.out.writeBy = t })
	return nil
}
