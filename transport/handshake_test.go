package transport

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func testHello() hello {
	return hello{versionMin: 1, versionMax: 3, kind: KindPull, cluster: testCluster, sender: 7, receiver: 2, incarnation: 9, nonce: 10}
}

// The bytes of version 1 are frozen.
func TestHandshakeBytes(t *testing.T) {
	const goldenHello = "62696c6c6574545000010003030000000102030000000000000000000000000000000007000000020000000000000009000000000000000ac450cba9e799aab4"
	got := testHello().encode()
	if len(got) != helloSize || hex.EncodeToString(got) != goldenHello {
		t.Errorf("hello is\n%x", got)
	}
	a := answer{version: 1, node: 2, cluster: testCluster, incarnation: 5, nonce: 6}
	const goldenAnswer = "62696c6c6574545000010000000000020102030000000000000000000000000000000000000000050000000000000006" + "0000000000000000" + "f8cc45f1e30f909d"
	if got := a.encode(); len(got) != answerSize || hex.EncodeToString(got) != goldenAnswer {
		t.Errorf("answer is\n%x", got)
	}
}

func TestHandshakeRoundTrip(t *testing.T) {
	h, err := decodeHello(testHello().encode())
	if err != nil || h != testHello() {
		t.Errorf("%+v, %v", h, err)
	}
	for _, a := range []answer{
		{version: 1, node: 2, cluster: testCluster, incarnation: 5, nonce: 6},
		{code: RefusedCluster, node: 2, reason: "this is another"},
	} {
		got, err := readAnswer(bytes.NewReader(a.encode()))
		if err != nil || got != a {
			t.Errorf("%+v, %v", got, err)
		}
	}
	stream := testHello()
	stream.kind, stream.receiver = KindStream, 0
	if h, err := decodeHello(stream.encode()); err != nil || h != stream || h.kind.String() != "stream" {
		t.Errorf("%+v, %v", h, err)
	}
	for i := range helloSize { // every byte matters
		b := testHello().encode()
		b[i] ^= 0x10
		if _, err := decodeHello(b); !errors.Is(err, ErrBadHandshake) {
			t.Errorf("byte %d: %v", i, err)
		}
	}
	refusal := answer{code: RefusedBusy, reason: "no room"}.encode()
	for i := range refusal {
		b := bytes.Clone(refusal)
		b[i] ^= 0x10
		if _, err := readAnswer(bytes.NewReader(b)); err == nil {
			t.Errorf("byte %d of an answer does not matter", i)
		}
	}
}

func TestPrintable(t *testing.T) {
	for in, want := range map[string]string{"plain": "plain", "a\x00b\x1b[31m": "a b [31m", "\xff\xfe": "??", strings.Repeat("ü", 200): strings.Repeat("ü", 128)} {
		if got := printable(in, reasonMax); got != want {
			t.Errorf("%q: %q", in, got)
		}
	}
	if got := printable("x"+strings.Repeat("ü", 200), reasonMax); len(got) > reasonMax || !utf8.ValidString(got) {
		t.Errorf("%d bytes: %q", len(got), got)
	}
}

// Each refusal, as the side that is refused sees it.
func TestHandshakeIsRefused(t *testing.T) {
	m := newTestNetwork(t, 1)
	rec := newRecorder()
	b := testOptions(2, m.Host("b"))
	b.ListenAddress, b.OnEvent = "b", rec.onEvent
	b.Admit = func(p Peer) error {
		if p.ID == 66 {
			return errors.New("node 66 was removed")
		}
		return nil
	}
	two := startNode(t, b)
	for name, c := range map[string]struct {
		spoil func(*hello)
		code  RefusalCode
		is    error
		words string
	}{
		"version too new": {func(h *hello) { h.versionMin, h.versionMax = 2, 3 }, RefusedVersion, ErrVersion, "versions 1 to 1"},
		"cluster":         {func(h *hello) { h.cluster[0]++ }, RefusedCluster, ErrWrongCluster, "this is cluster 0102"},
		"receiver":        {func(h *hello) { h.receiver = 3 }, RefusedReceiver, ErrWrongNode, "this is node 2"},
		"own id":          {func(h *hello) { h.sender = 2 }, RefusedDuplicate, ErrDuplicateNode, "own id"},
		"unknown":         {func(h *hello) { h.sender = 66 }, RefusedUnknown, ErrUnknownNode, "was removed"},
		"kind":            {func(h *hello) { h.kind = KindBatches }, RefusedKind, ErrNotServed, "batches is not served"},
		"other kind":      {func(h *hello) { h.kind = 77 }, RefusedKind, ErrNotServed, "kind 77"},
	} {
		t.Run(name, func(t *testing.T) {
			h := testHello()
			h.versionMin, h.versionMax, h.kind = 1, 1, KindRequests
			c.spoil(&h)
			conn := dialRaw(t, m, "b")
			if _, err := conn.Write(h.encode()); err != nil {
				t.Fatal(err)
			}
			a, err := readAnswer(conn)
			if err != nil || a.code != c.code || !strings.Contains(a.reason, c.words) || a.version != 0 {
				t.Fatalf("%+v, %v", a, err)
			}
			if !errors.Is(&RefusedError{Code: a.code}, c.is) {
				t.Errorf("code %d is not %v", a.code, c.is)
			}
			expectClosed(t, conn)
		})
	}
	if s := two.Stats(); s.HandshakesRefused != 7 || s.HandshakesBad != 0 {
		t.Errorf("%+v", s)
	}
}

// What is no handshake gets no answer.
func TestHandshakeIsBad(t *testing.T) {
	m := newTestNetwork(t, 1)
	rec := newRecorder()
	b := testOptions(2, m.Host("b"))
	b.ListenAddress, b.OnEvent, b.HandshakeTimeout = "b", rec.onEvent, 100*time.Millisecond
	two := startNode(t, b)
	broken := testHello().encode()
	broken[40]++
	negative, directed, nobody := testHello(), testHello(), testHello()
	negative.sender, directed.kind, nobody.receiver = -1, KindStream, 0
	for name, sent := range map[string][]byte{
		"other protocol": []byte("GET / HTTP/1.1\r\nHost: b\r\n\r\n" + strings.Repeat(" ", 64)),
		"checksum":       broken, "id": negative.encode(), "stream to a node": directed.encode(), "pull from nobody": nobody.encode(), "cut": testHello().encode()[:30], "nothing": nil,
	} {
		t.Run(name, func(t *testing.T) {
			conn := dialRaw(t, m, "b")
			_, _ = conn.Write(sent)
			expectClosed(t, conn)
		})
	}
	rec.wait(t, "seven events", func() bool { return len(rec.events) == 7 })
	if e := rec.waitEvent(t, EventBadHandshake); !strings.Contains(e.String(), "bad-handshake") {
		t.Error(e)
	}
	if s := two.Stats(); s.HandshakesBad != 7 || s.HandshakesRefused != 0 || s.Conns != 0 {
		t.Errorf("%+v", s)
	}
}

// What the dialling side makes of answers.
func TestAnswerIsJudged(t *testing.T) {
	good := answer{version: 1, node: 2, cluster: testCluster, incarnation: 1, nonce: 1}
	for name, c := range map[string]struct {
		spoil  func(*answer)
		is     error
		status PeerStatus
		stream error // of a raw stream, which takes whoever is there
	}{
		"refused": {func(a *answer) { *a = answer{code: RefusedUnknown, node: 2, reason: "go away\x00"} }, ErrUnknownNode, PeerRejected, ErrUnknownNode},
		"busy":    {func(a *answer) { *a = answer{code: RefusedBusy, node: 2} }, ErrBusy, PeerUnreachable, ErrBusy},
		"version": {func(a *answer) { a.version = 9 }, ErrVersion, PeerRejected, ErrVersion},
		"cluster": {func(a *answer) { a.cluster[3]++ }, ErrWrongCluster, PeerRejected, nil},
		"node":    {func(a *answer) { a.node = 3 }, ErrWrongNode, PeerRejected, nil},
		"no node": {func(a *answer) { a.node = 0 }, ErrWrongNode, PeerRejected, ErrWrongNode},
		"code":    {func(a *answer) { a.code = 999 }, ErrBadHandshake, PeerRejected, ErrBadHandshake},
	} {
		t.Run(name, func(t *testing.T) {
			m := newTestNetwork(t, 1)
			l, err := m.Host("b").Listen("b")
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					a := good
					c.spoil(&a)
					_, _ = readHello(conn)
					_, _ = conn.Write(a.encode())
					_, _ = conn.Read(make([]byte, 1))
					_ = conn.Close()
				}
			}()
			defer func() { _ = l.Close(); <-done }()
			rec := newRecorder()
			opts := testOptions(1, m.Host("a"))
			opts.OnPeerState = rec.onState
			n := startNode(t, opts)
			n.SetAddress(2, "b")
			_, err = n.OpenBatches(testContext(t), 2, FullFails)
			if !errors.Is(err, c.is) || !errors.Is(err, ErrUnreachable) {
				t.Error(err)
			}
			stream, err := n.OpenStream(testContext(t), "b")
			if !errors.Is(err, c.stream) {
				t.Errorf("stream: %v", err)
			}
			if err == nil {
				_ = stream.Close()
			}
			state := rec.waitState(t, 2, c.status)
			if state.Gone() || !errors.Is(state.Err, c.is) || strings.Contains(state.Err.Error(), "\x00") {
				t.Errorf("%+v", state)
			}
		})
	}
}

func TestIncarnationsDisplace(t *testing.T) {
	m := newTestNetwork(t, 1)
	rec, old := newRecorder(), newRecorder()
	b := testOptions(2, m.Host("b"))
	b.ListenAddress, b.OnEvent = "b", rec.onEvent
	startNode(t, b)
	a := testOptions(1, m.Host("a"))
	a.Incarnation, a.OnPeerState = 5, old.onState
	first := startNode(t, a)
	first.SetAddress(2, "b")
	old.waitState(t, 2, PeerReachable)
	a.Incarnation, a.OnPeerState = 6, nil
	second := startNode(t, a)
	second.SetAddress(2, "b")
	if _, err := second.Call(testContext(t), 2, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if e := rec.waitEvent(t, EventDisplaced); e.Peer.ID != 1 || e.Peer.Incarnation != 6 {
		t.Error(e)
	}
	state := old.waitState(t, 2, PeerRejected)
	var refused *RefusedError
	if !errors.As(state.Err, &refused) || refused.Code != RefusedDuplicate || !refused.ByPeer || !strings.Contains(state.Err.Error(), "newer incarnation") {
		t.Errorf("%v", state.Err)
	}
	if _, err := first.Call(testContext(t), 2, nil); !errors.Is(err, ErrDuplicateNode) {
		t.Errorf("call of the displaced: %v", err)
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	m := newTestNetwork(t, 1)
	rec := newRecorder()
	b := testOptions(2, m.Host("b"))
	b.ListenAddress, b.OnEvent, b.HandshakesMax, b.PeersMax, b.HandshakeTimeout = "b", rec.onEvent, 2, 1, time.Minute
	two := startNode(t, b)
	var conns []net.Conn
	for range 2 {
		conns = append(conns, dialRaw(t, m, "b"))
	}
	for two.Stats().Conns != 2 {
		time.Sleep(time.Millisecond)
	}
	expectClosed(t, dialRaw(t, m, "b"))
	rec.waitEvent(t, EventLimit)
	h := testHello()
	h.kind = KindRequests
	for i, c := range conns { // the second is another node than the first
		h.sender = int32(10 + i)
		if _, err := c.Write(h.encode()); err != nil {
			t.Fatal(err)
		}
		a, err := readAnswer(c)
		if want := []RefusalCode{0, RefusedBusy}[i]; err != nil || a.code != want {
			t.Errorf("%+v, %v", a, err)
		}
	}
	if s := two.Stats(); s.ConnsRefused != 1 {
		t.Errorf("%+v", s)
	}
}

func dialRaw(t testing.TB, m *MemoryNetwork, addr string) net.Conn {
	t.Helper()
	conn, err := m.Host("stranger").Dial(testContext(t), addr)
	if err != nil {
		t.Fatal(err)
	}
	closeConn(t, conn)
	return conn
}

// expectClosed waits until the other side closes; what it sends before is skipped.
func expectClosed(t testing.TB, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	buf := make([]byte, 4096)
	for {
		if _, err := conn.Read(buf); err != nil {
			if isTimeout(err) {
				t.Error("the connection was not closed")
			}
			return
		}
	}
}

func FuzzHandshake(f *testing.F) {
	f.Add(testHello().encode(), answer{version: 1, node: 2, cluster: testCluster}.encode(), true)
	stream := testHello()
	stream.kind, stream.receiver = KindStream, 0
	f.Add(stream.encode(), answer{version: 1, node: 2}.encode(), true)
	f.Add([]byte("GET / HTTP/1.1"), answer{code: RefusedBusy, reason: "no"}.encode(), false)
	f.Fuzz(func(t *testing.T, first, second []byte, fix bool) {
		if fix && len(first) >= helloSize { // get past the checksum
			first = first[:helloSize]
			h := hello{}
			copy(first, handshakeMagic)
			sum := sum64(0, first[:56])
			for i := range 8 {
				first[56+i] = byte(sum >> (56 - 8*i))
			}
			h, err := readHello(bytes.NewReader(first))
			if err == nil && h.speaks(1, 1) && !bytes.Equal(h.encode(), first) {
				t.Errorf("%x reads as %+v", first, h)
			}
		} else {
			_, _ = readHello(bytes.NewReader(first))
		}
		if a, err := readAnswer(bytes.NewReader(second)); err == nil {
			if !utf8.ValidString(a.reason) || len(a.reason) > reasonMax {
				t.Errorf("reason %q", a.reason)
			}
		}
	})
}
