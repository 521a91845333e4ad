package replication

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/billetlog/billet/transport"
)

// Packets to a node that hangs are dropped, and memberlist is never held up.
func TestGossipPacketsNeverWait(t *testing.T) {
	m := transport.NewMemoryNetwork(1)
	defer func() { _ = m.Close() }()
	a := startGossiper(t, m.Host("a"), "a", fresh(1, 1), nil, func(c *discoveryConfig) {
		c.timings.stream = 10 * gossipPatience
		c.dial = func(ctx context.Context, _ string) (net.Conn, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
	})
	b := fresh(2, 2)
	b.Addr = "b"
	a.d.peers.note(&memberlist.Node{Name: gossipName(b), Meta: encodePeer(b)}, true)
	written := make(chan error, 1)
	go func() {
		var err error
		for range 10 * gossipQueueMax {
			for _, to := range []memberlist.Address{{Name: gossipName(b)}, {Name: "nobody"}, {Addr: "nowhere"}} {
				_, failed := a.d.transport.WriteToAddress([]byte("packet"), to)
				err = errors.Join(err, failed)
			}
		}
		written <- err
	}()
	select {
	case err := <-written:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(gossipPatience):
		t.Fatal("a packet waits for a node that hangs")
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
	t.Parallel() // it waits, mostly
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

// More streams than are served at a time are closed rather than kept.
func TestGossipStreamsAreBounded(t *testing.T) {
	m := transport.NewMemoryNetwork(1)
	defer func() { _ = m.Close() }()
	a := startGossiper(t, m.Host("a"), "a", fresh(1, 1), nil, func(c *discoveryConfig) { c.timings.stream = 10 * gossipPatience })
	var open []net.Conn
	for range gossipServedMax + 1 {
		conn, err := m.Host("evil").Dial(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, _ = conn.Write([]byte{gossipStream})
		open = append(open, conn)
	}
	ended := make(chan struct{}, len(open))
	for _, conn := range open {
		a.accepted.Go(func() {
			_, _ = io.Copy(io.Discard, conn)
			ended <- struct{}{}
		})
	}
	<-ended
	eventually(t, "the others are served", func() bool {
		a.d.transport.mu.Lock()
		defer a.d.transport.mu.Unlock()
		return a.d.transport.mu.served == gossipServedMax && a.d.transport.mu.inbound == gossipServedMax
	})
}
