package transport

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// A context that ends, ends every step of everything that was given it.
func TestContextEndsEachStep(t *testing.T) { synctest.Test(t, contextEndsEachStep) }

func contextEndsEachStep(t *testing.T) {
	m := newTestNetwork(t, 1)
	a, b := testOptions(1, m.Host("a")), testOptions(2, m.Host("b"))
	a.DialTimeout, a.HandshakeTimeout, a.PullStallTimeout = time.Minute, time.Minute, time.Minute
	rec := newRecorder()
	cancelled := make(chan error, 1)
	b.OnBatch = rec.onBatch
	b.OnRequest = func(ctx context.Context, _ Peer, _ []byte) ([]byte, error) {
		<-ctx.Done()
		cancelled <- ctx.Err()
		return nil, ctx.Err()
	}
	b.OnPull = func(ctx context.Context, _ Peer, r PullRequest) (Source, error) {
		if string(r.Payload) == "open" {
			<-ctx.Done()
			return Source{}, ctx.Err()
		}
		return Source{Length: 1 << 40, Reader: endless{}}, nil
	}
	b.PullBytesPerSecond = pullRateMin
	one, _ := pair(t, a, b)
	silent, err := m.Host("silent").Listen("silent") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	one.SetAddress(3, "silent")
	hidden, err := m.Host("hidden").Listen("hidden") // dials to it hang
	if err != nil {
		t.Fatal(err)
	}
	defer hidden.Close()
	m.Cut("a", "hidden", CutSilent)
	one.SetAddress(4, "hidden")
	if _, err := one.OpenBatches(testContext(t), 2, FullFails); err != nil {
		t.Fatal(err)
	}

	for name, step := range map[string]func(ctx context.Context) error{
		"dial batches":        func(ctx context.Context) error { _, err := one.OpenBatches(ctx, 4, FullFails); return err },
		"handshake batches":   func(ctx context.Context) error { _, err := one.OpenBatches(ctx, 3, FullFails); return err },
		"call while dialling": func(ctx context.Context) error { _, err := one.Call(ctx, 4, nil); return err },
		"call in handshake":   func(ctx context.Context) error { _, err := one.Call(ctx, 3, nil); return err },
		"call that runs":      func(ctx context.Context) error { _, err := one.Call(ctx, 2, nil); return err },
		"pull dials":          func(ctx context.Context) error { _, err := one.Pull(ctx, 4, PullRequest{}); return err },
		"pull opens": func(ctx context.Context) error {
			_, err := one.Pull(ctx, 2, PullRequest{Payload: []byte("open")})
			return err
		},
		"pull reads": func(ctx context.Context) error {
			p, err := one.Pull(ctx, 2, PullRequest{})
			if err != nil {
				return err
			}
			defer p.Close()
			_, err = io.Copy(io.Discard, p)
			return err
		},
		"batches stand": func(ctx context.Context) error {
			s, err := one.OpenBatches(ctx, 2, FullFails)
			if err != nil {
				return err
			}
			<-s.Done()
			return s.Err()
		},
	} {
		// In virtual time: it is cancelled when it has got as far as it gets.
		ctx, cancel := context.WithCancel(context.Background())
		timer := time.AfterFunc(50*time.Millisecond, cancel)
		done := make(chan error, 1)
		go func() { done <- step(ctx) }()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(patience):
			t.Fatalf("%s goes on", name)
		}
		timer.Stop()
		cancel()
	}
	if err := <-cancelled; !errors.Is(err, context.Canceled) {
		t.Errorf("the handler's context: %v", err)
	}
	// A deadline travels.
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := one.Call(ctx, 2, nil); !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, ErrTimeout) {
		t.Error(err)
	}
	<-cancelled
	// A context that has ended sends nothing.
	if _, err := one.Call(ctx, 2, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

// endless gives zeros.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
