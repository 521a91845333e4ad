package kafka

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// shortTime is a timeout in tests that is waited for.
const shortTime = 50 * time.Millisecond

// Clients that take their time are sent away; one that waits for an answer is not.
func TestTimeouts(t *testing.T) {
	t.Run("nothing is asked", func(t *testing.T) {
		r := newConnRig(t, func(o *Options) { o.IdleTimeout = shortTime })
		r.Serve()
		client := r.dial()
		ask[*kmsg.ApiVersionsResponse](client, kmsg.NewPtrApiVersionsRequest(), 0)
		client.closed()
		if lines := r.lines.all(); lines != "" {
			t.Errorf("lines about it: %s", lines)
		}
	})
	t.Run("an answer is waited for", func(t *testing.T) {
		r := newConnRig(t, func(o *Options) { o.IdleTimeout = shortTime / 10 })
		came := make(chan *answer, 1)
		r.answerTo(kmsg.Produce, func(_ *call, _ kmsg.Request, a *answer) { came <- a })
		r.Serve()
		client := r.dial()
		client.write(produceFrame(1))
		a := <-came
		<-time.After(shortTime)
		a.give(kmsg.NewPtrProduceRequest().ResponseKind())
		if _, err := client.next(); err != nil {
			t.Errorf("the client was sent away: %v", err)
		}
	})
	for _, part := range []int{2, 5, 20} { // of the size, of the header, of the rest
		t.Run("a part comes", func(t *testing.T) {
			r := newConnRig(t, func(o *Options) { o.ReadTimeout, o.IdleTimeout = shortTime, shortTime })
			r.Serve()
			client := r.dial()
			client.write(frameOf(kmsg.NewPtrApiVersionsRequest(), 0, 1)[:part])
			client.closed()
		})
	}
	t.Run("nothing is proved", func(t *testing.T) {
		r := newConnRig(t, func(o *Options) { o.Listeners[0].SASL, o.AuthTimeout = Mechanisms(), shortTime })
		r.Serve()
		client := r.dial()
		ask[*kmsg.ApiVersionsResponse](client, kmsg.NewPtrApiVersionsRequest(), 0)
		client.closed()
		r.lines.await(t, "did not prove who it is within")
	})
	t.Run("no handshake of TLS", func(t *testing.T) {
		r := newConnRig(t, func(o *Options) {
			o.Listeners[0].TLS, o.AuthTimeout = &tls.Config{MinVersion: tls.VersionTLS12}, shortTime
		})
		r.Serve()
		r.dial().closed()
	})
}

// A client that takes no answer is sent away, and its memory comes back.
func TestClientThatNeverReads(t *testing.T) {
	r := newConnRig(t, func(o *Options) { o.WriteTimeout = shortTime })
	released := make(chan struct{})
	r.answerTo(kmsg.CreateTopics, func(_ *call, _ kmsg.Request, a *answer) {
		a.giveEncoded(net.Buffers{make([]byte, 64<<20)}, true, func() { close(released) })
	})
	r.Serve()
	client := r.dial()
	client.write(frameOf(kmsg.NewPtrCreateTopicsRequest(), 5, 1))
	select {
	case <-released:
	case <-time.After(askTimeout):
		t.Fatal("the answer is held for a client that does not read")
	}
}

// A client that takes a large answer slowly, but takes it, lives longer than the timeout.
func TestClientThatReadsSlowly(t *testing.T) {
	const size = 24 << 20
	r := newConnRig(t, func(o *Options) { o.WriteTimeout = 300 * time.Millisecond })
	began := make(chan time.Time, 1)
	r.answerTo(kmsg.CreateTopics, func(_ *call, _ kmsg.Request, a *answer) {
		began <- time.Now()
		a.giveEncoded(net.Buffers{make([]byte, size)}, true, nil)
	})
	r.Serve()
	client := r.dial()
	client.write(frameOf(kmsg.NewPtrCreateTopicsRequest(), 5, 1))
	start := <-began
	total := 0
	buf := make([]byte, 1<<20)
	for total < size {
		n, err := io.ReadFull(client, buf[:min(len(buf), size-total)])
		if total += n; err != nil {
			t.Fatalf("after %d bytes and %v: %v", total, time.Since(start), err)
		}
		<-time.After(30 * time.Millisecond)
	}
	if took := time.Since(start); took < 600*time.Millisecond {
		t.Errorf("it took %v: too short to say anything", took)
	}
}

// Those who hold all memory and do not move make room for others, long before their own
// time is over.
func TestThoseWhoHoldMemoryMakeRoom(t *testing.T) {
	t.Run("answers", func(t *testing.T) {
		r := newConnRig(t, func(o *Options) { o.WriteTimeout, o.FetchMemoryMax = time.Hour, 1<<20 })
		r.shedAfter = time.Second / 2
		r.answerTo(kmsg.CreateTopics, func(c *call, _ kmsg.Request, a *answer) {
			if err := r.fetchMemory.Acquire(c.ctx, 1<<20); err != nil {
				a.end(err)
				return
			}
			a.giveEncoded(net.Buffers{make([]byte, 64<<20)}, true, func() { r.fetchMemory.Release(1 << 20) })
		})
		r.Serve()
		for range 2 {
			client := r.dial()
			client.write(frameOf(kmsg.NewPtrCreateTopicsRequest(), 5, 1))
		}
		client := r.dial()
		client.write(frameOf(kmsg.NewPtrCreateTopicsRequest(), 5, 1))
		if b, err := client.next(); err != nil || len(b) < 64<<20 {
			t.Errorf("%d bytes: %v", len(b), err)
		}
		r.lines.await(t, "others wait for the memory")
	})
	t.Run("requests", func(t *testing.T) {
		r := newConnRig(t, func(o *Options) { o.ReadTimeout, o.RequestBytesMax, o.RequestMemoryMax = time.Hour, 1<<20, 2<<20 })
		r.shedAfter = time.Second / 2
		r.Serve()
		for range 4 {
			client := r.dial()
			client.write(bigEndian(1<<20, int16(kmsg.CreateTopics), int16(5), "and no more"))
		}
		client := r.dial()
		client.write(bigEndian(1<<20-1, int16(kmsg.ApiVersions), int16(0), 1, int16(-1), string(make([]byte, 1<<20-11))))
		if _, err := client.next(); err != nil {
			t.Error(err)
		}
		r.lines.await(t, "others wait for the memory")
	})
}

// What speaks plaintext to TLS is told apart from what is broken.
func TestPlaintextToTLS(t *testing.T) {
	r := newConnRig(t, func(o *Options) { o.Listeners[0].TLS = &tls.Config{MinVersion: tls.VersionTLS12} })
	r.Serve()
	client := r.dial()
	client.write(frameOf(kmsg.NewPtrApiVersionsRequest(), 3, 1))
	client.closed()
	r.lines.await(t, "this is not TLS")
	client = r.dial()
	client.write([]byte("GET / HTTP/1.1\r\n\r\n"))
	client.closed()
	r.lines.await(t, "this looks like HTTP")
}

// A hostile client cannot fill the log.
func TestLogIsLimited(t *testing.T) {
	var l lineLimiter
	now := time.Unix(1000, 0)
	allowed := func() (n, dropped int) {
		for range 1000 {
			if d, ok := l.allow(now); ok {
				n, dropped = n+1, dropped+d
			}
		}
		return n, dropped
	}
	if n, dropped := allowed(); n != logBurst || dropped != 0 {
		t.Errorf("%d lines at once, %d left out", n, dropped)
	}
	now = now.Add(logInterval)
	if n, dropped := allowed(); n != 1 || dropped != 1000-logBurst {
		t.Errorf("%d lines after an interval, %d left out before", n, dropped)
	}
	now = now.Add(time.Hour)
	if n, dropped := allowed(); n != logBurst || dropped != 999 {
		t.Errorf("%d lines after an hour, %d left out before", n, dropped)
	}
	r := newConnRig(t)
	r.Serve()
	for range 3 * logBurst {
		client := r.dial()
		client.write(bigEndian(-1, "abcd"))
		client.closed()
	}
	r.alive()
	if n := strings.Count(r.lines.all(), "\n"); n > logBurst+logBurst/2 {
		t.Errorf("%d lines", n)
	}
	if r.Server.logger.Enabled(t.Context(), slog.LevelDebug) {
		t.Error("the logger of the test is another one")
	}
}

// Every request that may come gets its memory when nobody else has any, whatever the
// bounds are.
func TestMemoryFitsEveryRequest(t *testing.T) {
	for _, o := range []Options{{}, {RequestBytesMax: 1 << 10}, {RequestBytesMax: 5 << 20, RequestMemoryMax: 5 << 20},
		{RequestBytesMax: 5 << 20, RequestMemoryMax: 6 << 20}, {RequestBytesMax: 9 << 20, RequestMemoryMax: 9 << 20}} {
		o.EnsureDefaults()
		m := newMemory(&o)
		ctx, cancel := context.WithTimeout(t.Context(), askTimeout)
		for size := 1; size <= o.RequestBytesMax; size += 1 + 2*size {
			for _, pooled := range []bool{false, true} {
				for _, n := range []int{size, min(size, o.EarlyRequestBytesMax), o.RequestBytesMax} {
					f, err := m.take(ctx, n, n <= o.EarlyRequestBytesMax && !pooled, pooled)
					if err != nil {
						t.Fatalf("%d bytes of %d: %v", n, o.RequestBytesMax, err)
					}
					if len(f.b) != n {
						t.Fatalf("%d bytes for %d", len(f.b), n)
					}
					f.release()
				}
			}
		}
		cancel()
		if !m.all.TryAcquire(o.RequestMemoryMax) {
			t.Error("not all memory came back")
		}
	}
}

// Those who announce large requests, and those nobody knows, leave memory to others.
func TestMemoryIsShared(t *testing.T) {
	o := Options{RequestBytesMax: 10 << 20, RequestMemoryMax: 20 << 20}
	o.EnsureDefaults()
	m := newMemory(&o)
	ctx, cancel := context.WithTimeout(t.Context(), shortTime)
	defer cancel()
	var held []*frame
	take := func(size int, early bool) int {
		n := 0
		for {
			ctx, cancel := context.WithTimeout(ctx, shortTime/10)
			f, err := m.take(ctx, size, early, false)
			cancel()
			if errors.Is(err, context.DeadlineExceeded) {
				return n
			}
			held = append(held, f)
			n++
		}
	}
	if n := take(10<<20, false); n != 1 {
		t.Errorf("%d requests of half of the memory", n)
	}
	if n := take(64<<10, true); n != int(o.RequestMemoryMax/earlyShare/(64<<10)) {
		t.Errorf("%d requests of clients that nobody knows", n)
	}
	f, err := m.take(t.Context(), 1<<20, false, true)
	if err != nil {
		t.Fatal(err)
	}
	f.release()
	for _, f := range held {
		f.release()
	}
}

// Frames of produce requests are used again; what is not one's own is never seen.
func TestFramesAreUsedAgain(t *testing.T) {
	o := Options{}
	o.EnsureDefaults()
	m := newMemory(&o)
	for _, size := range []int{1, minFrame - 1, minFrame, minFrame + 1, 1<<20 - 1, 8 << 20} {
		f, err := m.take(t.Context(), size, false, true)
		if err != nil {
			t.Fatal(err)
		}
		if f.class < 0 || cap(f.b) < size || cap(f.b) > max(2*size, minFrame) {
			t.Errorf("%d bytes in a frame of %d", size, cap(f.b))
		}
		f.release()
	}
	if class := classOf(8<<20 + 1); class != -1 {
		t.Errorf("a frame above the largest is of class %d", class)
	}
	other, err := m.take(t.Context(), 100, false, false)
	if err != nil {
		t.Fatal(err)
	}
	kept := other.b
	copy(kept, "keep")
	other.release()
	if !bytes.HasPrefix(kept, []byte("keep")) {
		t.Error("a frame that may be referred to was touched")
	}
}

// Steady produce does not allocate its frames.
func BenchmarkFrame(b *testing.B) {
	o := Options{}
	o.EnsureDefaults()
	m := newMemory(&o)
	b.ReportAllocs()
	for b.Loop() {
		f, err := m.take(b.Context(), 100<<10, false, true)
		if err != nil {
			b.Fatal(err)
		}
		f.release()
	}
}
