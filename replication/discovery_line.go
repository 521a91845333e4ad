package replication

import (
	"io"
	"net"
	"sync"
	"time"
)

// gossipLine sends packets to one address, over a stream that is opened when there is a packet and closed when there was none for a while.
type gossipLine struct {
	t     *gossipTransport
	addr  string
	queue chan []byte

	conn     *gossipLineConn // nil: none
	failedAt time.Time       // when a stream could not be opened
}

// gossipLineConn is the stream, and what was not answered yet. A stream whose peer is gone, or that a network lost, takes writes for minutes;
// the answers tell.
type gossipLineConn struct {
	net.Conn
	stop func() bool

	mu struct {
		sync.Mutex
		unanswered int
		since      time.Time // when the last answer came, or the first packet went out after all were answered
		ended      bool
	}
}

// carry sends until the line was idle, or the transport ends.
func (l *gossipLine) carry() {
	defer l.t.wg.Done()
	defer l.drop()
	idle := time.NewTimer(l.t.timings.idle)
	defer idle.Stop()
	for {
		select {
		case frame := <-l.queue:
			l.put(frame)
			idle.Reset(l.t.timings.idle)
		case <-idle.C:
			if l.t.retire(l) {
				return
			}
			idle.Reset(l.t.timings.idle)
		case <-l.t.ctx.Done():
			return
		}
	}
}

// put sends a packet, or drops it.
func (l *gossipLine) put(frame []byte) {
	if l.conn != nil && l.conn.stuck(l.t.timings.stream) {
		l.drop()
	}
	if l.conn == nil && !l.open() {
		return
	}
	l.conn.sent()
	err := l.conn.SetWriteDeadline(time.Now().Add(l.t.timings.stream))
	if err == nil {
		_, err = l.conn.Write(frame)
	}
	if err != nil {
		l.drop()
	}
}

// open makes a stream, not too often: packets that come meanwhile are dropped.
func (l *gossipLine) open() bool {
	if !l.failedAt.IsZero() && time.Since(l.failedAt) < l.t.timings.redial {
		return false
	}
	conn, stop, err := l.t.open(l.t.ctx, l.addr, l.t.timings.stream, gossipPackets)
	if err == nil {
		err = conn.SetReadDeadline(time.Time{})
		if err != nil {
			stop()
			_ = conn.Close()
		}
	}
	if err != nil {
		l.failedAt = time.Now()
		return false
	}
	l.failedAt = time.Time{}
	l.conn = &gossipLineConn{Conn: conn, stop: stop}
	l.t.wg.Add(1)
	go func(c *gossipLineConn) {
		defer l.t.wg.Done()
		c.listen()
	}(l.conn)
	return true
}

// drop ends the stream, if there is one.
func (l *gossipLine) drop() {
	if l.conn != nil {
		l.conn.stop()
		_ = l.conn.Close()
		l.conn = nil
	}
}

// sent counts a packet.
func (c *gossipLineConn) sent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.unanswered == 0 {
		c.mu.since = time.Now()
	}
	c.mu.unanswered++
}

// stuck tells whether the stream is of no use any more.
func (c *gossipLineConn) stuck(timeout time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.ended || c.mu.unanswered > 0 && time.Since(c.mu.since) > timeout
}

// listen counts answers until the stream ends.
func (c *gossipLineConn) listen() {
	defer func() {
		c.mu.Lock()
		c.mu.ended = true
		c.mu.Unlock()
	}()
	var b [gossipQueueMax]byte
	for {
		n, err := io.ReadAtLeast(c.Conn, b[:], 1)
		if err != nil {
			return
		}
		c.mu.Lock()
		c.mu.unanswered -= n
		c.mu.since = time.Now()
		hostile := c.mu.unanswered < 0
		c.mu.Unlock()
		if hostile {
			return
		}
	}
}
