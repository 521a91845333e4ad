package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// memoryPair makes a connection between two hosts.
func memoryPair(t testing.TB, m *MemoryNetwork, from, to string) (near, far net.Conn) {
	t.Helper()
	l, err := m.Host(to).Listen(":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	near, err = m.Host(from).Dial(context.Background(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if far, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	closeConn(t, near)
	closeConn(t, far)
	return near, far
}

func TestMemoryConn(t *testing.T) {
	m := newTestNetwork(t, 1)
	near, far := memoryPair(t, m, "a", "b")
	data := bytes.Repeat([]byte("some bytes "), 300_000) // more than the window
	go func() {
		_, _ = near.Write(data)
		_ = near.Close()
	}()
	got, err := io.ReadAll(far)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := far.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write to who closed: %v", err)
	}
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
		t.Errorf("read after close: %v", err)
	}
	if _, err := near.Write(nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("write after close: %v", err)
	}
	if near.LocalAddr().String() != far.RemoteAddr().String() || near.RemoteAddr().Network() != "memory" {
		t.Error("addresses")
	}
	_ = far.Close()
	if len(m.mu.lanes) != 0 {
		t.Errorf("%d lanes are remembered", len(m.mu.lanes))
	}
}

func TestMemoryDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestNetwork(t, 1)
		near, far := memoryPair(t, m, "a", "b")
		began := time.Now()
		_ = near.SetReadDeadline(began.Add(time.Second))
		if _, err := near.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if _, err := near.Read(make([]byte, 1)); !isTimeout(err) {
			t.Errorf("again: %v", err)
		}
		_ = near.SetDeadline(time.Now().Add(time.Second))
		if n, err := near.Write(make([]byte, 2*memoryWindow)); !isTimeout(err) || n != memoryWindow {
			t.Errorf("wrote %d, %v", n, err)
		}
		// A deadline that is taken away, and one that comes while a read waits.
		_ = near.SetDeadline(time.Time{})
		done := make(chan error)
		go func() {
			_, err := near.Read(make([]byte, 1))
			done <- err
		}()
		synctest.Wait()
		_ = near.SetReadDeadline(time.Unix(1, 0))
		if err := <-done; !isTimeout(err) {
			t.Error(err)
		}
		go func() {
			_, err := far.Read(make([]byte, 2*memoryWindow))
			done <- err
		}()
		if err := <-done; err != nil {
			t.Error(err)
		}
		go func() {
			_, err := far.Read(make([]byte, 1))
			done <- err
		}()
		synctest.Wait()
		_ = far.Close()
		if err := <-done; !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
	})
}

func TestMemoryDelayAndBandwidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestNetwork(t, 1)
		m.SetLink("a", "b", Link{Delay: 100 * time.Millisecond, BytesPerSecond: 1000})
		began := time.Now()
		near, far := memoryPair(t, m, "a", "b")
		if took := time.Since(began); took != 100*time.Millisecond { // the way back has none
			t.Errorf("dial took %v", took)
		}
		began = time.Now()
		_, _ = near.Write(make([]byte, 500))
		_, _ = near.Write(make([]byte, 500))
		if time.Since(began) != 0 {
			t.Error("write waits")
		}
		if _, err := io.ReadFull(far, make([]byte, 500)); err != nil || time.Since(began) != 600*time.Millisecond {
			t.Errorf("the first half came after %v, %v", time.Since(began), err)
		}
		if _, err := io.ReadFull(far, make([]byte, 500)); err != nil || time.Since(began) != 1100*time.Millisecond {
			t.Errorf("the second half came after %v, %v", time.Since(began), err)
		}
		_, _ = far.Write([]byte("back"))
		if _, err := io.ReadFull(near, make([]byte, 4)); err != nil || time.Since(began) != 1100*time.Millisecond {
			t.Errorf("the answer came after %v", time.Since(began))
		}
	})
}

// The same seed gives the same delays and the same breaks, whatever else goes on.
func TestMemoryIsDeterministic(t *testing.T) {
	run := func(seed uint64, noise bool) (arrivals []time.Duration, brokenAt int) {
		synctest.Test(t, func(t *testing.T) {
			m := NewMemoryNetwork(seed)
			defer m.Close()
			m.SetLinks(Link{Jitter: time.Second, Break: 0.02})
			if noise {
				x, y := memoryPair(t, m, "x", "y")
				_, _ = x.Write([]byte("noise"))
				_, _ = y.Write([]byte("noise"))
			}
			near, far := memoryPair(t, m, "a", "b")
			began := time.Now()
			for i := range 500 {
				if _, err := near.Write([]byte("x")); err != nil {
					if !errors.Is(err, syscall.ECONNRESET) {
						t.Error(err)
					}
					brokenAt = i
					return
				}
				if _, err := far.Read(make([]byte, 1)); err != nil {
					t.Error(err)
				}
				arrivals = append(arrivals, time.Since(began))
			}
		})
		return arrivals, brokenAt
	}
	first, firstBreak := run(7, false)
	second, secondBreak := run(7, true)
	other, _ := run(8, false)
	if !slices.Equal(first, second) || firstBreak != secondBreak || len(first) == 0 {
		t.Errorf("%v and %d, then %v and %d", first, firstBreak, second, secondBreak)
	}
	if slices.Equal(first, other) {
		t.Error("another seed gives the same")
	}
}

func TestMemoryCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTestNetwork(t, 1)
		near, far := memoryPair(t, m, "a", "b")
		stranger, far2 := memoryPair(t, m, "c", "b")
		m.Cut("a", "b", CutSilent)
		// One way only: what goes back arrives.
		_, _ = near.Write([]byte("held"))
		_, _ = far.Write([]byte("back"))
		if n, err := near.Read(make([]byte, 10)); n != 4 || err != nil {
			t.Errorf("against the cut: %d, %v", n, err)
		}
		_ = far.SetReadDeadline(time.Now().Add(time.Hour))
		if _, err := far.Read(make([]byte, 10)); !isTimeout(err) {
			t.Errorf("through the cut: %v", err)
		}
		// Dials hang in both directions, even to who is down.
		l, _ := m.Host("b").Listen("b")
		for _, host := range []string{"a", "b"} {
			addr := map[string]string{"a": "b", "b": "la"}[host]
			if host == "b" {
				la, _ := m.Host("a").Listen("la")
				defer la.Close()
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			if _, err := m.Host(host).Dial(ctx, addr); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("dial from %s: %v", host, err)
			}
			cancel()
		}
		_ = l.Close()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := m.Host("a").Dial(ctx, "b"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dial to who is down behind a cut: %v", err)
		}
		if _, err := m.Host("c").Dial(context.Background(), "b"); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial to who is down: %v", err)
		}
		// After the cut it arrives, and so does the end that was hidden.
		_ = near.Close()
		m.Heal()
		_ = far.SetReadDeadline(time.Time{})
		if got, err := io.ReadAll(far); string(got) != "held" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		// Others saw nothing.
		_, _ = stranger.Write([]byte("x"))
		if _, err := far2.Read(make([]byte, 1)); err != nil {
			t.Error(err)
		}
	})
}

func TestMemoryRefusals(t *testing.T) {
	m := newTestNetwork(t, 1)
	near, far := memoryPair(t, m, "a", "b")
	l, err := m.Host("b").Listen("b")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Host("c").Listen("b"); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listen twice: %v", err)
	}
	m.Partition(CutRefuse, []string{"a", "c"}, []string{"b"})
	for _, c := range []net.Conn{near, far} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a cut connection: %v", err)
		}
	}
	ctx := testContext(t)
	if _, err := m.Host("c").Dial(ctx, "b"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
	m.Heal()
	m.SetLink("a", "b", Link{RefuseDial: 1})
	if _, err := m.Host("a").Dial(ctx, "b"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
	// What nobody accepted is reset when the listener goes.
	waiting, err := m.Host("c").Dial(ctx, "b")
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	_ = l.Close()
	if _, err := waiting.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Error(err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	done, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := m.Host("c").Dial(done, "b"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	_ = m.Close()
	if _, err := m.Host("c").Listen("d"); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if _, err := m.Host("c").Dial(ctx, "d"); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestMemoryFlap(t *testing.T) {
	run := func() (seen []time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			m := NewMemoryNetwork(3)
			defer m.Close()
			near, far := memoryPair(t, m, "a", "b")
			began := time.Now()
			stop := m.Flap("a", "b", CutSilent, time.Second, 3*time.Second)
			for i := range 20 {
				_, _ = near.Write([]byte{byte(i)})
				var p [1]byte
				if _, err := far.Read(p[:]); err != nil || p[0] != byte(i) {
					t.Error(err, p)
				}
				seen = append(seen, time.Since(began))
				time.Sleep(time.Second)
			}
			stop()
			stop()
			_, _ = near.Write([]byte("x"))
			if _, err := far.Read(make([]byte, 1)); err != nil {
				t.Error(err)
			}
		})
		return seen
	}
	first, second := run(), run()
	if !slices.Equal(first, second) || first[0] == 0 || first[19] < 20*time.Second {
		t.Errorf("%v, %v", first, second)
	}
}

// Nodes over a network that does its worst: every answer belongs to its question, every batch comes at most once and in order.
func TestNodesOverABadNetwork(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			m := NewMemoryNetwork(seed)
			m.SetLinks(Link{Delay: time.Millisecond, Jitter: 20 * time.Millisecond, Break: 0.01, RefuseDial: 0.1, BytesPerSecond: 10 << 20})
			rec := newRecorder()
			a, b := testOptions(1, m.Host("a")), testOptions(2, m.Host("b"))
			b.ListenAddress, b.OnBatch = "b", rec.onBatch
			two, err := NewNode(b)
			if err != nil {
				t.Fatal(err)
			}
			one, err := NewNode(a)
			if err != nil {
				t.Fatal(err)
			}
			one.SetAddress(2, "b")
			stop := m.Flap("a", "b", CutMode(1+seed%2), 2*time.Second, time.Second)
			answered, sent := 0, 0
			var batches *Batches
			for i := range 500 {
				ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
				if got, err := one.Call(ctx, 2, fmt.Append(nil, i)); err == nil {
					answered++
					if string(got) != fmt.Sprint(i) {
						t.Errorf("call %d: %q", i, got)
					}
				}
				if batches == nil || batches.Err() != nil {
					batches, _ = one.OpenBatches(context.Background(), 2, FullFails)
				}
				if batches != nil && batches.Send(fmt.Appendf(nil, "%06d", i)) == nil {
					sent++
				}
				cancel()
				time.Sleep(10 * time.Millisecond)
			}
			stop()
			m.SetLinks(Link{})
			time.Sleep(time.Minute)
			if _, err := one.Call(context.Background(), 2, nil); err != nil {
				t.Errorf("after all that: %v", err)
			}
			if err := errors.Join(one.Close(), two.Close(), m.Close()); err != nil {
				t.Error(err)
			}
			rec.mu.Lock()
			defer rec.mu.Unlock()
			if !slices.IsSorted(rec.batches) || len(slices.Compact(slices.Clone(rec.batches))) != len(rec.batches) {
				t.Errorf("seed %d: batches %q", seed, rec.batches)
			}
			if answered < 50 || len(rec.batches) < 50 || two.Stats().BadFrames != 0 {
				t.Errorf("seed %d: %d answered, %d of %d delivered, %+v", seed, answered, len(rec.batches), sent, two.Stats())
			}
		})
	}
}
