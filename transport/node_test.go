package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestStreams(t *testing.T) {
	eachTransport(t, func(t *testing.T, host func(string) Transport, listen string) {
		ctx := testContext(t)
		rec := newRecorder()
		data := bytes.Repeat([]byte("0123456789abcdef"), 200_000) // 3.2 MB
		file := filepath.Join(t.TempDir(), "data")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		a, b := testOptions(1, host("a")), testOptions(2, host("b"))
		a.CheckIdentity, b.CheckIdentity = anyIdentity, anyIdentity
		a.OnPeerState = rec.onState
		b.ListenAddress, b.OnBatch = listen, rec.onBatch
		b.OnPull = func(_ context.Context, from Peer, r PullRequest) (Source, error) {
			if from.ID != 1 || string(r.Payload) != "data" {
				return Source{}, fmt.Errorf("no such thing: %s", r.Payload)
			}
			f, err := os.Open(file)
			if err != nil {
				return Source{}, err
			}
			return FileRange(f, r.Offset, int64(len(data))-r.Offset)
		}
		one, two := pair(t, a, b)
		rec.waitState(t, 2, PeerReachable)

		batches, err := one.OpenBatches(ctx, 2, FullFails)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 500 {
			if err := batches.Send(fmt.Appendf(nil, "batch %d", i)); err != nil {
				t.Fatal(err)
			}
		}
		rec.wait(t, "delivery", func() bool { return len(rec.batches) == 500 })
		for i, got := range rec.batches {
			if got != fmt.Sprintf("batch %d", i) {
				t.Fatalf("batch %d is %q", i, got)
			}
		}

		var calls sync.WaitGroup
		for i := range 50 {
			calls.Go(func() {
				want := strings.Repeat(fmt.Sprint(i), i*100)
				got, err := one.Call(ctx, 2, []byte(want))
				if err != nil || string(got) != want {
					t.Errorf("call %d: %d bytes, %v", i, len(got), err)
				}
			})
		}
		calls.Wait()

		const offset = 12345
		pull, err := one.Pull(ctx, 2, PullRequest{Payload: []byte("data"), Offset: offset})
		if err != nil {
			t.Fatal(err)
		}
		defer pull.Close()
		if pull.Length() != int64(len(data)-offset) {
			t.Errorf("length %d", pull.Length())
		}
		got, err := io.ReadAll(pull)
		if err != nil || !bytes.Equal(got, data[offset:]) || pull.Remaining() != 0 {
			t.Errorf("pulled %d bytes, %v", len(got), err)
		}
		var remote *RemoteError
		if _, err := one.Pull(ctx, 2, PullRequest{Payload: []byte("other")}); !errors.As(err, &remote) || !strings.Contains(remote.Text, "no such thing") {
			t.Errorf("pull of nothing: %v", err)
		}
		if s := two.Stats(); s.BatchesReceived != 500 || s.RequestsServed != 50 || s.PullsServed != 1 || s.BadFrames != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// In virtual time: a busy machine must not look like a dead peer.
func TestIdleConnectionsStay(t *testing.T) { synctest.Test(t, idleConnectionsStay) }

func idleConnectionsStay(t *testing.T) {
	m := newTestNetwork(t, 1)
	rec := newRecorder()
	a, b := testOptions(1, m.Host("a")), testOptions(2, m.Host("b"))
	a.OnPeerState, b.OnBatch = rec.onState, rec.onBatch
	one, two := pair(t, a, b)
	batches, err := one.OpenBatches(context.Background(), 2, FullFails)
	if err != nil {
		t.Fatal(err)
	}
	// Three times the time after which silence is death.
	timer := time.NewTimer(3 * a.DeadPeerTimeout)
	defer timer.Stop()
	select {
	case <-batches.Done():
		t.Fatalf("the idle connection ended: %v", batches.Err())
	case <-timer.C:
	}
	if one.PeerState(2).Status != PeerReachable || two.Stats().Conns != 2 {
		t.Errorf("state %+v, stats %+v", one.PeerState(2), two.Stats())
	}
	if err := batches.Send([]byte("still")); err != nil {
		t.Fatal(err)
	}
	rec.wait(t, "delivery", func() bool { return len(rec.batches) == 1 })
}

func TestOptionsAreValidated(t *testing.T) {
	good := testOptions(1, TCP{})
	for name, spoil := range map[string]func(*Options){
		"ID":                 func(o *Options) { o.ID = 0 },
		"StreamsMax":         func(o *Options) { o.StreamsMax = -1 },
		"Transport":          func(o *Options) { o.Transport = nil },
		"PingInterval":       func(o *Options) { o.PingInterval = o.DeadPeerTimeout },
		"BackoffMax":         func(o *Options) { o.BackoffMax = 1 },
		"BatchBytesMax":      func(o *Options) { o.BatchBytesMax = 2 << 30 },
		"ConnBytesMax":       func(o *Options) { o.ConnBytesMax = 5 },
		"InboundBytesMax":    func(o *Options) { o.InboundBytesMax = 5 },
		"PullBytesPerSecond": func(o *Options) { o.PullBytesPerSecond = 5 },
		"SendQueueBytes":     func(o *Options) { o.SendQueueBytes = -1 },
		"CloseTimeout":       func(o *Options) { o.CloseTimeout = -1 },
	} {
		o := good
		spoil(&o)
		if n, err := NewNode(o); !errors.Is(err, ErrInvalidOptions) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
			if n != nil {
				n.Close()
			}
		}
	}
}

func TestCloseWhateverBlocks(t *testing.T) { synctest.Test(t, closeWhateverBlocks) }

func closeWhateverBlocks(t *testing.T) {
	m := newTestNetwork(t, 1)
	release := make(chan struct{})
	a, b := testOptions(1, m.Host("a")), testOptions(2, m.Host("b"))
	b.OnBatch = func(Peer, []byte) { <-release }
	b.OnRequest = func(context.Context, Peer, []byte) ([]byte, error) { <-release; return nil, nil }
	b.CloseTimeout = 200 * time.Millisecond
	b.ListenAddress = "any:0"
	two, err := NewNode(b)
	if err != nil {
		t.Fatal(err)
	}
	one := startNode(t, a)
	one.SetAddress(2, two.Addr().String())
	one.SetAddress(3, "nobody") // dials for ever
	batches, err := one.OpenBatches(context.Background(), 2, FullWaits)
	if err != nil {
		t.Fatal(err)
	}
	failed := make(chan error, 2)
	go func() {
		for {
			if err := batches.Send(make([]byte, 1<<20)); err != nil {
				failed <- err
				return
			}
		}
	}()
	go func() {
		_, err := one.Call(context.Background(), 2, nil)
		failed <- err
	}()
	for two.Stats().RequestsServed == 0 || two.Stats().InboundBytes == 0 {
		time.Sleep(time.Millisecond)
	}
	began := time.Now()
	if err := one.Close(); err != nil {
		t.Errorf("close of the caller: %v", err)
	}
	if took := time.Since(began); took > time.Second {
		t.Errorf("close took %v", took)
	}
	for range 2 {
		if err := <-failed; !errors.Is(err, ErrClosed) {
			t.Errorf("the blocked call returned %v", err)
		}
	}
	if err := two.Close(); !errors.Is(err, ErrCloseTimeout) {
		t.Errorf("close with callbacks that run: %v", err)
	}
	close(release)
	two.running.Wait()
	if _, err := one.Call(context.Background(), 2, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("call after close: %v", err)
	}
	if _, err := one.OpenBatches(context.Background(), 2, FullFails); !errors.Is(err, ErrClosed) {
		t.Errorf("open after close: %v", err)
	}
}
