package transport

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

var testCluster = ClusterID{1, 2, 3}

// patience is how long a test waits for what should happen soon.
const patience = 30 * time.Second

func testContext(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// recorder collects what a node's callbacks hear.
type recorder struct {
	mu      sync.Mutex
	events  []Event
	states  []PeerState
	batches []string
	changed chan struct{}
}

func newRecorder() *recorder { return &recorder{changed: make(chan struct{})} }

func (r *recorder) add(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *recorder) onEvent(e Event)     { r.add(func() { r.events = append(r.events, e) }) }
func (r *recorder) onState(s PeerState) { r.add(func() { r.states = append(r.states, s) }) }
func (r *recorder) onBatch(_ Peer, payload []byte) {
	r.add(func() { r.batches = append(r.batches, string(payload)) })
}

// wait waits until the condition holds.
func (r *recorder) wait(t testing.TB, what string, holds func() bool) {
	t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		r.mu.Lock()
		ok, changed := holds(), r.changed
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			r.mu.Lock()
			defer r.mu.Unlock()
			t.Fatalf("%s did not happen; events %v, states %v, %d batches", what, r.events, r.states, len(r.batches))
		}
	}
}

func (r *recorder) waitEvent(t testing.TB, kind EventKind) Event {
	t.Helper()
	var found Event
	r.wait(t, "event "+string(kind), func() bool {
		for _, e := range r.events {
			if e.Kind == kind {
				found = e
				return true
			}
		}
		return false
	})
	return found
}

// waitState waits until the last state of a peer is as wanted.
func (r *recorder) waitState(t testing.TB, id int32, status PeerStatus) PeerState {
	t.Helper()
	var found PeerState
	r.wait(t, fmt.Sprintf("node %d %v", id, status), func() bool {
		for i := len(r.states) - 1; i >= 0; i-- {
			if r.states[i].ID == id {
				found = r.states[i]
				return found.Status == status
			}
		}
		return false
	})
	return found
}

// testOptions try again soon, and have the patience that a busy machine needs.
func testOptions(id int32, tr Transport) Options {
	return Options{
		ID: id, ClusterID: testCluster, Transport: tr,
		PingInterval: 100 * time.Millisecond, DeadPeerTimeout: 5 * time.Second,
		BackoffMin: 5 * time.Millisecond, BackoffMax: 50 * time.Millisecond,
		DialTimeout: 5 * time.Second, HandshakeTimeout: 5 * time.Second, PullStallTimeout: 5 * time.Second,
		OnRequest: func(_ context.Context, _ Peer, payload []byte) ([]byte, error) { return payload, nil },
	}
}

func startNode(t testing.TB, opts Options) *Node {
	t.Helper()
	n, err := NewNode(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// eachTransport runs a test over TCP and memory; listen is an address with a free port.
func eachTransport(t *testing.T, f func(t *testing.T, host func(string) Transport, listen string)) {
	t.Run("tcp", func(t *testing.T) {
		f(t, func(string) Transport { return TCP{} }, "127.0.0.1:0")
	})
	t.Run("memory", func(t *testing.T) {
		m := newTestNetwork(t, 1)
		f(t, func(name string) Transport { return m.Host(name) }, "any:0")
	})
	t.Run("tls", func(t *testing.T) {
		ca := newAuthority(t, "ca")
		f(t, func(name string) Transport { return ca.transport(t, name) }, "127.0.0.1:0")
	})
}

func newTestNetwork(t testing.TB, seed uint64) *MemoryNetwork {
	t.Helper()
	m := NewMemoryNetwork(seed)
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// anyIdentity accepts every certificate of the CA.
func anyIdentity(int32, Identity) error { return nil }

// pair starts node 1, which only dials, and node 2, which it knows.
func pair(t testing.TB, a, b Options) (*Node, *Node) {
	t.Helper()
	if b.ListenAddress == "" {
		b.ListenAddress = "any:0"
	}
	two := startNode(t, b)
	one := startNode(t, a)
	one.SetAddress(b.ID, two.Addr().String())
	return one, two
}

// closeConn closes what a test opened.
func closeConn(t testing.TB, c net.Conn) {
	t.Cleanup(func() { _ = c.Close() })
}
