package transport

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// FuzzLiveConnection sends frames that are right but for what the fuzzer did to them, and noise, to a node that serves another.
func FuzzLiveConnection(f *testing.F) {
	f.Add([]byte("payload"), byte(KindRequests), byte(frameRequest), uint64(1), uint16(50), uint16(0), false)
	f.Add([]byte("payload"), byte(KindBatches), byte(frameBatch), uint64(0), uint16(0), uint16(9), true)
	f.Add([]byte("payload"), byte(KindStream-1), byte(frameRequest), uint64(1), uint16(0), uint16(0), false)
	f.Add(PullRequest{Offset: 5, Payload: []byte("x")}.encode(), byte(KindPull), byte(framePull), uint64(1), uint16(0), uint16(0), false)
	m := newTestNetwork(f, 1)
	b := testOptions(2, m.Host("b"))
	b.ListenAddress, b.OnBatch = "b", func(Peer, []byte) {}
	b.BatchBytesMax, b.RequestBytesMax, b.PullRequestBytesMax, b.PeersMax = 1000, 1000, 1000, 1<<20
	b.OnPull = func(_ context.Context, _ Peer, r PullRequest) (Source, error) {
		return Source{Length: min(r.Length, 100), Reader: bytes.NewReader(make([]byte, 100))}, nil
	}
	b.OnStream = echo
	two := startNode(f, b)
	one := startNode(f, testOptions(1, m.Host("a")))
	one.SetAddress(2, "b")
	sender := atomic.Int32{}
	sender.Store(100)
	f.Fuzz(func(t *testing.T, payload []byte, stream, kind byte, id uint64, arg, flip uint16, twice bool) {
		p := dialPeer(t, m, "b", sender.Add(1), Kind(1+stream%4))
		frame := p.frame(header{kind: frameType(kind), id: id, arg: uint32(arg)}, string(payload))
		if int(flip) < 8*len(frame) && flip > 0 {
			frame[flip/8] ^= 1 << (flip % 8)
		}
		if twice {
			frame = append(frame, frame...)
		}
		_, _ = p.Write(frame)
		_, _ = p.Write(payload)
		_ = p.Close()
		if got, err := one.Call(testContext(t), 2, []byte("healthy")); err != nil || string(got) != "healthy" {
			t.Fatalf("a healthy peer: %q, %v; %+v", got, err, two.Stats())
		}
	})
}

// Nodes that come and go, closed in the middle of everything, leave no descriptor behind; goroutines are looked for in TestMain.
func TestNothingIsLeft(t *testing.T) {
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Skip("descriptors cannot be counted here")
		}
		return len(entries)
	}
	before := -1
	for round := range 6 {
		if round == 1 { // the first round opens what the runtime keeps
			before = count()
		}
		a, b := testOptions(1, TCP{}), testOptions(2, TCP{})
		a.ListenAddress, b.ListenAddress = "127.0.0.1:0", "127.0.0.1:0"
		b.OnBatch, b.OnStream = func(Peer, []byte) {}, echo
		b.OnPull = func(context.Context, Peer, PullRequest) (Source, error) {
			return Source{Length: 1 << 40, Reader: endless{}}, nil
		}
		one, err := NewNode(a)
		if err != nil {
			t.Fatal(err)
		}
		two, err := NewNode(b)
		if err != nil {
			t.Fatal(err)
		}
		one.SetAddress(2, two.Addr().String())
		two.SetAddress(1, one.Addr().String())
		ctx, cancel := context.WithCancel(context.Background())
		for range 5 {
			batches, err := one.OpenBatches(ctx, 2, FullDrops)
			if err != nil {
				t.Fatal(err)
			}
			_ = batches.Send(make([]byte, 1<<20))
			pull, err := one.Pull(ctx, 2, PullRequest{})
			if err != nil {
				t.Fatal(err)
			}
			_, _ = pull.Read(make([]byte, 1000))
			stream, err := one.OpenStream(ctx, two.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			_, _ = stream.Write(make([]byte, 1000))
			if round%2 == 0 {
				_ = pull.Close()
				_ = stream.Close()
			}
		}
		if round%3 == 0 {
			cancel()
		}
		if err := errors.Join(one.Close(), two.Close()); err != nil {
			t.Error(err)
		}
		cancel()
		if one.Stats().Conns+two.Stats().Conns != 0 {
			t.Errorf("%+v", one.Stats())
		}
	}
	if after := count(); after > before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// flakyListener fails now and then, as when descriptors run out.
type flakyListener struct {
	net.Listener
	calls atomic.Int32
}

func (l *flakyListener) Accept() (net.Conn, error) {
	if n := l.calls.Add(1); n <= 3 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

type flakyTransport struct{ Memory }

func (f flakyTransport) Listen(addr string) (net.Listener, error) {
	l, err := f.Memory.Listen(addr)
	return &flakyListener{Listener: l}, err
}

func TestAcceptIsTriedAgain(t *testing.T) {
	m := newTestNetwork(t, 1)
	rec := newRecorder()
	b := testOptions(2, flakyTransport{m.Host("b")})
	b.OnEvent = rec.onEvent
	one, _ := pair(t, testOptions(1, m.Host("a")), b)
	if _, err := one.Call(testContext(t), 2, nil); err != nil {
		t.Error(err)
	}
	if e := rec.waitEvent(t, EventAccept); !errors.Is(e.Err, syscall.EMFILE) {
		t.Error(e)
	}
	if _, err := NewNode(Options{ID: 1, ClusterID: testCluster, Transport: TCP{}, ListenAddress: "not an address"}); err == nil {
		t.Error("it listens nowhere")
	}
}

// An inbound connection of a peer that falls silent is closed and reported.
func TestSilentPeerIsClosed(t *testing.T) { synctest.Test(t, silentPeerIsClosed) }

func silentPeerIsClosed(t *testing.T) {
	m := newTestNetwork(t, 1)
	rec := newRecorder()
	b := testOptions(2, m.Host("b"))
	b.ListenAddress, b.OnEvent, b.DeadPeerTimeout = "b", rec.onEvent, 200*time.Millisecond
	startNode(t, b)
	p := dialPeer(t, m, "b", 7, KindRequests)
	expectClosed(t, p)
	if e := rec.waitEvent(t, EventDeadPeer); e.Peer.ID != 7 || !errors.Is(e.Err, ErrDeadPeer) {
		t.Error(e)
	}
}
