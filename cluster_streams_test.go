package billet

import (
	"context"
	"fmt"
	"net"
	"sync"
	"syscall"
	"testing"

	"github.com/billetlog/billet/transport"
)

// streamCuts cuts what a network's own cuts cannot tell apart: connections of one kind. A connection says what it is for in the first bytes that its
// dialling side writes.
type streamCuts struct {
	mu    sync.Mutex
	cuts  map[streamRoute]transport.CutMode
	conns map[*kindConn]struct{}
}

// streamRoute is the connections of one kind that a host makes to an address.
type streamRoute struct {
	from, to string
	kind     transport.Kind
}

func newStreamCuts() *streamCuts {
	return &streamCuts{cuts: map[streamRoute]transport.CutMode{}, conns: map[*kindConn]struct{}{}}
}

// host returns a host's transport.
func (s *streamCuts) host(inner transport.Memory, name string) *kindTransport {
	return &kindTransport{Memory: inner, cuts: s, host: name}
}

// cut cuts the connections of some kinds that a host has made or makes to an address, in both directions. Silently: what is sent is lost, and the connection breaks
// when the cut ends. Refused: connections break at once, and new ones with their first bytes.
func (s *streamCuts) cut(from, to string, mode transport.CutMode, kinds ...transport.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kind := range kinds {
		r := streamRoute{from, to, kind}
		s.cuts[r] = mode
		for c := range s.conns {
			if c.route == r && mode == transport.CutRefuse {
				_ = c.Conn.Close()
			}
		}
	}
}

// heal ends all cuts.
func (s *streamCuts) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.cuts)
	for c := range s.conns {
		if c.lost {
			_ = c.Conn.Close()
		}
	}
}

// kindTransport is one host's access to the network.
type kindTransport struct {
	transport.Memory
	cuts *streamCuts
	host string
}

// Dial is that of the network.
func (t *kindTransport) Dial(ctx context.Context, addr string) (net.Conn, error) {
	conn, err := t.Memory.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	c := &kindConn{Conn: conn, cuts: t.cuts, route: streamRoute{from: t.host, to: addr}}
	t.cuts.mu.Lock()
	defer t.cuts.mu.Unlock()
	t.cuts.conns[c] = struct{}{}
	return c, nil
}

// kindConn is a connection on the side that made it.
type kindConn struct {
	net.Conn
	cuts  *streamCuts
	route streamRoute // the kind is 0 until it has said what it is for
	lost  bool        // it has lost something and is of no use any more
}

// helloKindAt is where a hello says what the connection is for.
const helloKindAt = 12

func (c *kindConn) mode() transport.CutMode {
	c.cuts.mu.Lock()
	defer c.cuts.mu.Unlock()
	mode := c.cuts.cuts[c.route]
	if c.lost {
		mode = transport.CutSilent
	}
	c.lost = c.lost || mode == transport.CutSilent
	return mode
}

// Write writes, unless the connection is cut.
func (c *kindConn) Write(b []byte) (int, error) {
	c.cuts.mu.Lock()
	if c.route.kind == 0 && len(b) > helloKindAt {
		c.route.kind = transport.Kind(b[helloKindAt])
	}
	c.cuts.mu.Unlock()
	switch c.mode() {
	case transport.CutSilent:
		return len(b), nil
	case transport.CutRefuse:
		_ = c.Close()
		return 0, fmt.Errorf("write: %w", syscall.ECONNRESET)
	}
	return c.Conn.Write(b)
}

// Read reads what came while the connection is not cut.
func (c *kindConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || c.mode() != transport.CutSilent {
			return n, err
		}
	}
}

// Close closes the connection.
func (c *kindConn) Close() error {
	c.cuts.mu.Lock()
	delete(c.cuts.conns, c)
	c.cuts.mu.Unlock()
	return c.Conn.Close()
}

// Cuts by kind leave connections of other kinds alone.
func TestStreamCuts(t *testing.T) {
	network := transport.NewMemoryNetwork(1)
	defer func() { _ = network.Close() }()
	cuts := newStreamCuts()
	l, err := network.Host("b").Listen("b")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan byte, 16)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				b := make([]byte, 64)
				for {
					n, err := conn.Read(b)
					if err != nil {
						return
					}
					got <- b[n-1]
				}
			}()
		}
	}()
	open := func(kind transport.Kind) net.Conn {
		conn, err := cuts.host(network.Host("a"), "a").Dial(testContext(t), "b")
		if err != nil {
			t.Fatal(err)
		}
		hello := make([]byte, 64)
		hello[helloKindAt] = byte(kind)
		_, _ = conn.Write(hello)
		return conn
	}
	gossip, raft := open(transport.KindStream), open(transport.KindBatches)
	<-got
	<-got
	cuts.cut("a", "b", transport.CutSilent, transport.KindStream)
	_, err1 := gossip.Write([]byte{1})
	_, err2 := raft.Write([]byte{2})
	if b := <-got; b != 2 || err1 != nil || err2 != nil {
		t.Errorf("got %d, %v, %v", b, err1, err2)
	}
	cuts.heal()
	if _, err := gossip.Read(make([]byte, 1)); err == nil {
		t.Error("a connection that lost something goes on")
	}
	cuts.cut("a", "b", transport.CutRefuse, transport.KindBatches)
	if _, err := raft.Write([]byte{3}); err == nil {
		t.Error("a connection that was cut takes something")
	}
	other := open(transport.KindStream)
	<-got
	_, _ = other.Write([]byte{4})
	if b := <-got; b != 4 {
		t.Errorf("got %d", b)
	}
}
