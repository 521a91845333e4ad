package transport

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"testing"
)

func reader(b []byte, limits frameLimits) *frameReader {
	return &frameReader{r: bufio.NewReader(bytes.NewReader(b)), seed: 42, limits: limits}
}

// The bytes of version 1 are frozen.
func TestFrameBytes(t *testing.T) {
	const golden = "00000003" + "03000000" + "000003e8" + "00000007" + "0000000000000009" + "13c1d910702770e6" + "53f2224bf6914da3" + "616263"
	got := appendFrame(nil, 42, header{kind: frameRequest, arg: 1000, seq: 7, id: 9}, []byte("abc"))
	if hex.EncodeToString(got) != golden {
		t.Errorf("%x", got)
	}
}

func TestFrameReader(t *testing.T) {
	limits := frameLimits{framePing: 0, frameBatch: 10}
	var b []byte
	b = appendFrame(b, 42, header{kind: frameBatch, seq: 0}, []byte("one"))
	b = appendFrame(b, 42, header{kind: frameBatch, seq: 1}, []byte("skipped"))
	b = appendFrame(b, 42, header{kind: framePing, seq: 2}, nil)
	r := reader(b, limits)
	h, err := r.next()
	if err != nil {
		t.Fatal(err)
	}
	if p, err := r.payload(h, nil); err != nil || string(p) != "one" {
		t.Errorf("%q, %v", p, err)
	}
	if h, err = r.next(); err != nil || r.discard(h) != nil {
		t.Error(err)
	}
	if h, err = r.next(); err != nil || h.kind != framePing {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err = r.next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	for name, frame := range map[string][]byte{
		"type":    appendFrame(nil, 42, header{kind: frameRequest}, nil),
		"length":  appendFrame(nil, 42, header{kind: frameBatch}, make([]byte, 11)),
		"number":  appendFrame(nil, 42, header{kind: frameBatch, seq: 1}, nil),
		"seed":    appendFrame(nil, 43, header{kind: frameBatch}, nil),
		"ping":    appendFrame(nil, 42, header{kind: framePing}, []byte("x")),
		"cut":     appendFrame(nil, 42, header{kind: frameBatch}, nil)[:20],
		"payload": appendFrame(nil, 42, header{kind: frameBatch}, []byte("abc"))[:headerSize+2],
	} {
		r := reader(frame, limits)
		h, err := r.next()
		if err == nil {
			_, err = r.payload(h, nil)
		}
		if !errors.Is(err, ErrBadFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	good := appendFrame(nil, 42, header{kind: frameBatch}, []byte("abc"))
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 4
		r := reader(b, limits)
		h, err := r.next()
		if err == nil {
			_, err = r.payload(h, nil)
		}
		if !errors.Is(err, ErrBadFrame) {
			t.Errorf("byte %d: %v", i, err)
		}
	}
}

// A length is judged before memory is taken for it.
func TestFrameLengthIsCheckedFirst(t *testing.T) {
	var head [headerSize]byte
	header{length: 1 << 30, kind: frameBatch}.encode(head[:], 42)
	r := reader(head[:], frameLimits{frameBatch: 1 << 20})
	if n := testing.AllocsPerRun(10, func() {
		r.r.Reset(bytes.NewReader(head[:]))
		if _, err := r.next(); !errors.Is(err, ErrBadFrame) {
			t.Fatal(err)
		}
	}); n > 20 {
		t.Errorf("%v allocations", n)
	}
}

// rawPeer is a connection whose handshake was made by hand, to send what a Node would not.
type rawPeer struct {
	net.Conn
	read, write uint64
	seq         uint32
}

func dialPeer(t testing.TB, m *MemoryNetwork, addr string, sender int32, kind Kind) *rawPeer {
	t.Helper()
	conn := dialRaw(t, m, addr)
	h := testHello()
	h.versionMax, h.kind, h.sender = 1, kind, sender
	if kind == KindStream {
		h.receiver = 0
	}
	if _, err := conn.Write(h.encode()); err != nil {
		t.Fatal(err)
	}
	a, err := readAnswer(conn)
	if err != nil || a.code != 0 {
		t.Fatalf("%+v, %v", a, err)
	}
	p := &rawPeer{Conn: conn}
	p.write, p.read = frameSeeds(h.nonce, a.nonce)
	return p
}

// frame makes the next frame.
func (p *rawPeer) frame(h header, payload string) []byte {
	h.seq = p.seq
	p.seq++
	return appendFrame(nil, p.write, h, []byte(payload))
}

// Bad frames on a live connection close it and harm no other.
func TestBadFramesCloseTheirConnection(t *testing.T) {
	m := newTestNetwork(t, 1)
	rec := newRecorder()
	b := testOptions(2, m.Host("b"))
	b.ListenAddress, b.OnEvent, b.OnBatch, b.BatchBytesMax = "b", rec.onEvent, rec.onBatch, 1000
	b.OnPull = func(context.Context, Peer, PullRequest) (Source, error) { return Source{}, nil }
	two := startNode(t, b)
	healthy := startNode(t, testOptions(1, m.Host("a")))
	healthy.SetAddress(2, "b")
	batches, err := healthy.OpenBatches(testContext(t), 2, FullFails)
	if err != nil {
		t.Fatal(err)
	}
	bad := uint64(0)
	sender := int32(100)
	attack := func(name string, kind Kind, cut bool, send func(p *rawPeer) []byte) {
		t.Run(name, func(t *testing.T) {
			sender++
			p := dialPeer(t, m, "b", sender, kind)
			if _, err := p.Write(send(p)); err != nil {
				t.Fatal(err)
			}
			if cut {
				_ = p.Close()
			} else {
				bad++
			}
			expectClosed(t, p)
			if !cut {
				rec.wait(t, "an event", func() bool { return uint64(len(rec.events)) == bad })
			}
		})
	}
	attack("mutated header", KindBatches, false, func(p *rawPeer) []byte { f := p.frame(header{kind: frameBatch}, "x"); f[1] = 1; return f })
	attack("mutated payload", KindBatches, false, func(p *rawPeer) []byte { f := p.frame(header{kind: frameBatch}, "x"); f[headerSize]++; return f })
	attack("replayed", KindBatches, false, func(p *rawPeer) []byte {
		f := p.frame(header{kind: frameBatch}, "replayed")
		return append(f, f...)
	})
	attack("of the other direction", KindBatches, false, func(p *rawPeer) []byte { p.write = p.read; return p.frame(header{kind: frameBatch}, "x") })
	attack("too large", KindBatches, false, func(p *rawPeer) []byte { return p.frame(header{kind: frameBatch}, string(make([]byte, 1001))) })
	attack("a request among batches", KindBatches, false, func(p *rawPeer) []byte { return p.frame(header{kind: frameRequest, id: 1}, "") })
	attack("a response to a server", KindRequests, false, func(p *rawPeer) []byte { return p.frame(header{kind: frameResponse, id: 1}, "") })
	attack("unknown type", KindRequests, false, func(p *rawPeer) []byte { return p.frame(header{kind: 99}, "") })
	attack("short pull", KindPull, false, func(p *rawPeer) []byte { return p.frame(header{kind: framePull}, "short") })
	attack("negative pull", KindPull, false, func(p *rawPeer) []byte {
		return p.frame(header{kind: framePull}, string(PullRequest{Offset: -1}.encode()))
	})
	attack("noise", KindBatches, false, func(*rawPeer) []byte { return bytes.Repeat([]byte("noise"), 100) })
	attack("truncated", KindBatches, true, func(p *rawPeer) []byte { return p.frame(header{kind: frameBatch}, "truncated")[:headerSize+3] })

	if s := two.Stats(); s.BadFrames != bad {
		t.Errorf("%d bad frames counted, %d sent", s.BadFrames, bad)
	}
	if err := batches.Send([]byte("healthy")); err != nil {
		t.Error(err)
	}
	rec.wait(t, "delivery", func() bool { return len(rec.batches) == 2 })
	rec.mu.Lock()
	if rec.batches[0] != "replayed" || rec.batches[1] != "healthy" {
		t.Errorf("delivered %q", rec.batches)
	}
	rec.mu.Unlock()
	if _, err := healthy.Call(testContext(t), 2, []byte("x")); err != nil {
		t.Error(err)
	}
}

// A peer that answers what was not asked is closed, and the call fails.
func TestBadAnswersCloseTheirConnection(t *testing.T) {
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
			h, _ := readHello(conn)
			a := answer{version: 1, node: 2, cluster: testCluster, incarnation: 1, nonce: 1}
			_, write := frameSeeds(h.nonce, a.nonce)
			frame := appendFrame(nil, write, header{kind: frameResponse, id: 12345}, []byte("unasked"))
			if h.kind == KindPull {
				frame = appendFrame(nil, write, header{kind: framePullBody}, []byte{0x80, 0, 0, 0, 0, 0, 0, 0})
			}
			_, _ = conn.Write(append(a.encode(), frame...))
			_, _ = io.Copy(io.Discard, conn)
			_ = conn.Close()
		}
	}()
	defer func() { _ = l.Close(); <-done }()
	rec := newRecorder()
	opts := testOptions(1, m.Host("a"))
	opts.OnEvent = rec.onEvent
	n := startNode(t, opts)
	n.SetAddress(2, "b")
	rec.waitEvent(t, EventBadFrame)
	if _, err := n.Pull(testContext(t), 2, PullRequest{}); !errors.Is(err, ErrBadFrame) || !errors.Is(err, ErrConnLost) {
		t.Errorf("a pull of negative length: %v", err)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(appendFrame(nil, 42, header{kind: frameRequest, arg: 5, id: 1}, []byte("hello")), byte(frameRequest), uint16(5), true)
	f.Add([]byte("noise that is longer than a header, so that it is looked at"), byte(0), uint16(0), false)
	f.Fuzz(func(t *testing.T, b []byte, kind byte, length uint16, fix bool) {
		if fix && len(b) >= headerSize { // get past the header's sum
			h := header{kind: frameType(kind), length: uint32(length)}
			h.payloadSum = sum64(42, b[headerSize:])
			h.encode(b[:headerSize], 42)
		}
		r := reader(b, frameLimits{framePing: 0, frameRequest: 100, framePull: 200, framePullBody: pullBodySize})
		for {
			h, err := r.next()
			if err != nil {
				return
			}
			p, err := r.payload(h, nil)
			if err != nil {
				return
			}
			if len(p) > 200 {
				t.Fatalf("%d bytes", len(p))
			}
			if q, err := decodePullRequest(p); err == nil && !bytes.Equal(q.encode(), p) {
				t.Fatalf("%x reads as %+v", p, q)
			}
		}
	})
}
