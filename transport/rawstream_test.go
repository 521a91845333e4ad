package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"
)

// echo sends back what comes, to the end.
func echo(_ Peer, conn net.Conn) { _, _ = io.Copy(conn, conn) }

// readAll reads to the end.
func readAll(conn net.Conn) ([]byte, error) {
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	return io.ReadAll(conn)
}

// openStream opens one that must open.
func openStream(t testing.TB, n *Node, addr string) net.Conn {
	t.Helper()
	conn, err := n.OpenStream(testContext(t), addr)
	if err != nil {
		t.Fatal(err)
	}
	closeConn(t, conn)
	return conn
}

// Nodes that share no cluster, and have the same id, exchange bytes as over any connection.
func TestRawStream(t *testing.T) {
	eachTransport(t, func(t *testing.T, host func(string) Transport, listen string) {
		data := bytes.Repeat([]byte("0123456789abcdef"), 200_000) // 3.2 MB: more than what a network holds
		peers, got := make(chan Peer, 1), make(chan []byte, 1)
		a, b := testOptions(2, host("a")), testOptions(2, host("b"))
		a.ClusterID, a.Incarnation, b.ClusterID = ClusterID{}, 77, ClusterID{9}
		a.CheckIdentity, b.CheckIdentity = anyIdentity, anyIdentity
		b.ListenAddress = listen
		b.OnStream = func(from Peer, conn net.Conn) {
			peers <- from
			buf := make([]byte, len(data))
			if _, err := io.ReadFull(conn, buf); err != nil {
				t.Error(err)
			}
			if _, err := conn.Write(buf); err != nil {
				t.Error(err)
			}
			rest, err := io.ReadAll(conn)
			if err != nil {
				t.Errorf("after the last byte: %v", err)
			}
			got <- append(buf, rest...)
		}
		two, one := startNode(t, b), startNode(t, a)
		ctx, cancel := context.WithCancel(context.Background())
		conn, err := one.OpenStream(ctx, two.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		cancel() // only bounded making it
		if p := <-peers; p.ID != 2 || p.Incarnation != 77 || p.Address != conn.LocalAddr().String() {
			t.Errorf("peer %+v", p)
		}
		written := make(chan error, 1)
		go func() {
			_, err := conn.Write(data)
			written <- err
		}()
		back := make([]byte, len(data))
		if _, err := io.ReadFull(conn, back); err != nil || !bytes.Equal(back, data) {
			t.Errorf("what came back: %v", err)
		}
		if err := <-written; err != nil {
			t.Error(err)
		}
		// A read that runs out of time leaves the connection usable.
		_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := conn.Read(back); !isTimeout(err) {
			t.Errorf("deadline: %v", err)
		}
		if _, err := conn.Write([]byte("end")); err != nil {
			t.Error(err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		if all := <-got; !bytes.Equal(all, append(data, "end"...)) {
			t.Errorf("%d bytes came", len(all))
		}
		if _, err := conn.Read(back); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read after close: %v", err)
		}
		if s := two.Stats(); s.StreamsServed != 1 || s.HandshakesRefused != 0 || one.Stats().Conns != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// The acceptor's end: what it wrote before its handler returned is read, then the end.
func TestRawStreamEndsWithItsHandler(t *testing.T) {
	eachTransport(t, func(t *testing.T, host func(string) Transport, listen string) {
		b := testOptions(2, host("b"))
		b.ListenAddress, b.CheckIdentity = listen, anyIdentity
		b.OnStream = func(_ Peer, conn net.Conn) { _, _ = conn.Write([]byte("all")) }
		two := startNode(t, b)
		conn := openStream(t, two, two.Addr().String()) // to itself
		if got, err := readAll(conn); err != nil || string(got) != "all" {
			t.Errorf("%q, %v", got, err)
		}
	})
}

// Whoever closes its node ends its streams, in whatever call they are, and waits for handlers.
func TestRawStreamEndsWithTheNode(t *testing.T) {
	eachTransport(t, func(t *testing.T, host func(string) Transport, listen string) {
		for _, closer := range []string{"dialler", "acceptor"} {
			accepted, ended := make(chan struct{}), make(chan error, 1)
			a, b := testOptions(1, host("a")), testOptions(2, host("b"))
			a.CheckIdentity, b.CheckIdentity = anyIdentity, anyIdentity
			b.ListenAddress = listen
			b.OnStream = func(_ Peer, conn net.Conn) {
				close(accepted)
				_, err := conn.Read(make([]byte, 1))
				ended <- err
			}
			two, one := startNode(t, b), startNode(t, a)
			conn := openStream(t, one, two.Addr().String())
			<-accepted
			read := make(chan error, 1)
			go func() {
				_, err := conn.Read(make([]byte, 1))
				read <- err
			}()
			near, far, node := read, ended, one
			if closer == "acceptor" {
				near, far, node = ended, read, two
			}
			if err := node.Close(); err != nil {
				t.Errorf("%s: %v", closer, err)
			}
			if err := <-near; !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s: its read: %v", closer, err)
			}
			if err := <-far; !isReset(err) {
				t.Errorf("%s: the other's read: %v", closer, err)
			}
			if _, err := node.OpenStream(context.Background(), "b"); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrUnreachable) {
				t.Errorf("%s: open after close: %v", closer, err)
			}
		}
	})
}

func TestRawStreamIsRefused(t *testing.T) {
	m := newTestNetwork(t, 1)
	rec := newRecorder()
	a, b := testOptions(1, m.Host("a")), testOptions(2, m.Host("b"))
	a.ListenAddress = "a"
	b.ListenAddress, b.StreamsMax, b.OnStream, b.OnEvent = "b", 2, echo, rec.onEvent
	b.Admit = func(Peer) error { return errors.New("nobody is admitted") }
	one, two := startNode(t, a), startNode(t, b)
	if _, err := two.OpenStream(testContext(t), "a"); !errors.Is(err, ErrNotServed) || !errors.Is(err, ErrUnreachable) {
		t.Errorf("without OnStream: %v", err)
	}
	if _, err := one.OpenStream(testContext(t), "nobody"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("to nobody: %v", err)
	}
	// The bound counts streams that stand, not those that stood.
	for range 5 {
		var conns []net.Conn
		for range 2 {
			conns = append(conns, openStream(t, one, "b"))
		}
		_, err := one.OpenStream(testContext(t), "b")
		var refused *RefusedError
		if !errors.Is(err, ErrBusy) || !errors.As(err, &refused) || refused.Node != 2 || !refused.ByPeer {
			t.Fatalf("a stream too many: %v", err)
		}
		for _, c := range conns {
			_ = c.Close()
		}
		for two.Stats().Conns > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	if e := rec.waitEvent(t, EventRefused); !errors.Is(e.Err, ErrBusy) || e.Peer.ID != 1 {
		t.Error(e)
	}
	if s := one.Stats(); s.Dials != 16 || s.DialsFailed != 6 {
		t.Errorf("%+v", s)
	}
}

// A handshake that fails behind our consent takes no place for ever.
func TestRawStreamThatNeverStood(t *testing.T) {
	m := newTestNetwork(t, 1)
	b := testOptions(2, m.Host("b"))
	b.ListenAddress, b.StreamsMax, b.OnStream = "b", 1, echo
	two := startNode(t, b)
	one := startNode(t, testOptions(1, m.Host("a")))
	m.SetLink("b", "a", Link{Break: 1}) // the answer does not arrive
	for range 3 {
		if _, err := one.OpenStream(testContext(t), "b"); !errors.Is(err, syscall.ECONNRESET) {
			t.Error(err)
		}
	}
	m.SetLink("b", "a", Link{})
	for two.Stats().Conns > 0 {
		time.Sleep(time.Millisecond)
	}
	openStream(t, one, "b")
}

// A context bounds dial and handshake.
func TestRawStreamIsGivenUp(t *testing.T) {
	m := newTestNetwork(t, 1)
	a := testOptions(1, m.Host("a"))
	a.DialTimeout, a.HandshakeTimeout = time.Hour, time.Hour
	one := startNode(t, a)
	l, err := m.Host("b").Listen("b") // accepts, but never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, cut := range []CutMode{CutNone, CutSilent} {
		m.Cut("a", "b", cut)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		if _, err := one.OpenStream(ctx, "b"); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, ErrUnreachable) {
			t.Errorf("cut %v: %v", cut, err)
		}
		cancel()
	}
	if s := one.Stats(); s.Conns != 0 {
		t.Errorf("%+v", s)
	}
}

// On TLS both sides hold the certificate against the id that is claimed.
func TestRawStreamIdentity(t *testing.T) {
	ca, other := newAuthority(t, "ca"), newAuthority(t, "other")
	good1, good2 := ca.transport(t, "node-1"), ca.transport(t, "node-2")
	for name, c := range map[string]struct {
		one, two *MutualTLS
		is       error
		byPeer   bool
	}{
		"good":           {good1, good2, nil, false},
		"client's name":  {ca.transport(t, "node-9"), good2, ErrIdentity, true},
		"server's name":  {good1, ca.transport(t, "node-9"), ErrIdentity, false},
		"client of CA 2": {other.transport(t, "node-1"), good2, ErrAuthentication, false},
		"server of CA 2": {good1, other.transport(t, "node-2"), ErrAuthentication, false},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := testOptions(1, c.one), testOptions(2, c.two)
			a.CheckIdentity, b.CheckIdentity = NameCheck(nodeName), NameCheck(nodeName)
			served := make(chan Peer, 1)
			b.ListenAddress = "127.0.0.1:0"
			b.OnStream = func(from Peer, conn net.Conn) {
				served <- from
				echo(from, conn)
			}
			two, one := startNode(t, b), startNode(t, a)
			conn, err := one.OpenStream(testContext(t), two.Addr().String())
			if c.is == nil {
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				if p := <-served; p.ID != 1 || !p.Identity.Has("node-1") {
					t.Errorf("%+v", p)
				}
				return
			}
			var refused *RefusedError
			if !errors.Is(err, c.is) || errors.As(err, &refused) && refused.ByPeer != c.byPeer {
				t.Errorf("%v", err)
			}
		})
	}
}

// The network's faults are those of streams.
func TestRawStreamIsCut(t *testing.T) {
	m := newTestNetwork(t, 1)
	a, b := testOptions(1, m.Host("a")), testOptions(2, m.Host("b"))
	b.ListenAddress, b.OnStream = "b", echo
	one, two := startNode(t, a), startNode(t, b)
	conn := openStream(t, one, "b")
	buf := make([]byte, 10)
	m.Partition(CutSilent, []string{"a"}, []string{"b"})
	if _, err := conn.Write([]byte("held")); err != nil {
		t.Error(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if _, err := conn.Read(buf); !isTimeout(err) {
		t.Errorf("through a silent cut: %v", err)
	}
	m.Heal()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if got, err := io.ReadFull(conn, buf[:4]); err != nil || string(buf[:4]) != "held" {
		t.Errorf("after it: %q, %v", buf[:got], err)
	}
	m.Partition(CutRefuse, []string{"a"}, []string{"b"})
	if _, err := conn.Read(buf); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("through a refusing cut: %v", err)
	}
	if _, err := one.OpenStream(testContext(t), "b"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new one: %v", err)
	}
	for two.Stats().Conns > 0 {
		time.Sleep(time.Millisecond)
	}
}

// A stream says nothing about the node of that id in the cluster: it displaces none.
func TestRawStreamDisplacesNobody(t *testing.T) {
	m := newTestNetwork(t, 1)
	a, b, stranger := testOptions(1, m.Host("a")), testOptions(2, m.Host("b")), testOptions(1, m.Host("c"))
	a.Incarnation, stranger.Incarnation, stranger.ClusterID = 5, 6, ClusterID{9}
	b.ListenAddress, b.OnStream = "b", echo
	b.OnBatch = func(Peer, []byte) {}
	one, two := pair(t, a, b)
	batches, err := one.OpenBatches(context.Background(), 2, FullFails)
	if err != nil {
		t.Fatal(err)
	}
	conn := openStream(t, startNode(t, stranger), "b")
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Error(err)
	}
	if _, err := one.Call(testContext(t), 2, nil); err != nil || batches.Err() != nil {
		t.Errorf("call %v, batches %v", err, batches.Err())
	}
	two.mu.Lock()
	defer two.mu.Unlock()
	if k := two.mu.known[1]; k.incarnation != 5 {
		t.Errorf("incarnation %d", k.incarnation)
	}
}
