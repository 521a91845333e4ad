package replication

import (
	"context"
	"io"
	"net"
	"testing"

	"github.com/hashicorp/memberlist"

	"github.com/billetlog/billet/transport"
)

// Packets to a node that hangs are dropped, and memberlist is never held up.
func TestGossipPacketsNeverWait(t *testing.T) {
	m := transport.NewMemoryNetwork(1)
	defer func() { _ = m.Close() }()
	a := startGossiper(t, m.Host("a"), "a", fresh(1, 1), nil, func(c *discoveryConfig) {
		c.dial = func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	b := fresh(2, 2)
	b.Addr = "b"
	a.d.peers.note(&memberlist.Node{Name: gossipName(b), Meta: encodePeer(b)}, true)
	for range 100 * gossipQueueMax {
		for _, to := range []memberlist.Address{{Name: gossipName(b)}, {Name: "nobody"}, {Addr: "nowhere"}} {
			if _, err := a.d.transport.WriteToAddress([]byte("packet"), to); err != nil {
				t.Fatal(err)
			}
		}
	}
	a.d.transport.mu.Lock()
	lines := len(a.d.transport.mu.lines)
	a.d.transport.mu.Unlock()
	if lines != 1 {
		t.Fatalf("%d lines", lines)
	}
	if _, err := a.d.transport.DialTimeout("nowhere", gossipPatience); err == nil {
		t.Fatal("dialled an address that nobody made")
	}
}

// A stream that takes packets and answers none is replaced, and closed when there are no more.
func TestGossipLineIsReplacedAndRetired(t *testing.T) {
	m := transport.NewMemoryNetwork(1)
	defer func() { _ = m.Close() }()
	mute, err := m.Host("b").Listen("b")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mute.Close() }()
	a := startGossiper(t, m.Host("a"), "a", fresh(1, 1), nil, nil)
	b := fresh(2, 2)
	b.Addr = "b"
	a.d.peers.note(&memberlist.Node{Name: gossipName(b), Meta: encodePeer(b)}, true)
	streams := make(chan net.Conn)
	go func() {
		defer close(streams)
		for range 2 {
			conn, err := mute.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			streams <- conn
		}
	}()
	var got []net.Conn
	eventually(t, "there was a second stream", func() bool {
		_, _ = a.d.transport.WriteToAddress([]byte("packet"), memberlist.Address{Name: gossipName(b)})
		select {
		case conn := <-streams:
			got = append(got, conn)
		default:
		}
		return len(got) == 2
	})
	for _, conn := range got {
		if n, err := io.Copy(io.Discard, conn); n == 0 || err != nil {
			t.Errorf("a stream had %d bytes and ended with %v", n, err)
		}
		_ = conn.Close()
	}
	eventually(t, "the line is gone", func() bool {
		a.d.transport.mu.Lock()
		defer a.d.transport.mu.Unlock()
		return len(a.d.transport.mu.lines) == 0
	})
}
