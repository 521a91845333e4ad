package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// watchedTCP is TCP whose accepted connections tell when they are asked to read from a file by themselves, as sendfile needs it.
type watchedTCP struct {
	TCP
	fromFile *atomic.Int64
}

type watchedListener struct {
	net.Listener
	fromFile *atomic.Int64
}

type watchedConn struct {
	*net.TCPConn
	fromFile *atomic.Int64
}

func (w watchedTCP) Listen(addr string) (net.Listener, error) {
	l, err := w.TCP.Listen(addr)
	return watchedListener{l, w.fromFile}, err
}

func (l watchedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return watchedConn{c.(*net.TCPConn), l.fromFile}, nil
}

func (c watchedConn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.TCPConn.ReadFrom(r)
	if limited, ok := r.(*io.LimitedReader); ok {
		if _, ok := limited.R.(*os.File); ok {
			c.fromFile.Add(n)
		}
	}
	return n, err
}

// A file's range reaches TCP as a file, without passing through our memory.
func TestPullOfAFileUsesReadFrom(t *testing.T) {
	data := make([]byte, 5<<20+2000)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	name := filepath.Join(t.TempDir(), "segment")
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
	var fromFile atomic.Int64
	var opened *os.File
	a, b := testOptions(1, TCP{}), testOptions(2, watchedTCP{fromFile: &fromFile})
	b.ListenAddress = "127.0.0.1:0"
	b.OnPull = func(_ context.Context, _ Peer, r PullRequest) (Source, error) {
		f, err := os.Open(string(r.Payload))
		if err != nil {
			return Source{}, err
		}
		opened = f
		return FileRange(f, r.Offset, r.Length)
	}
	one, two := pair(t, a, b)
	const offset, length = 1000, 5 << 20
	p, err := one.Pull(testContext(t), 2, PullRequest{Payload: []byte(name), Offset: offset, Length: length})
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(p)
	if err != nil || !bytes.Equal(got, data[offset:offset+length]) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	_ = p.Close()
	for two.Stats().Conns > 1 {
		time.Sleep(time.Millisecond)
	}
	if fromFile.Load() != length || two.Stats().PullBytesSent != length {
		t.Errorf("%d of %d bytes came from the file", fromFile.Load(), length)
	}
	if err := opened.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the file is still open: %v", err)
	}
	if _, err := FileRange(nil, -1, 0); err == nil {
		t.Error("a negative offset")
	}
	if _, err := FileRange(opened, 0, 0); err == nil {
		t.Error("a closed file")
	}
}

// source serves data over memory.
func pullNodes(t *testing.T, m *MemoryNetwork, data []byte, spoil func(a, b *Options)) (*Node, *Node) {
	t.Helper()
	a, b := testOptions(1, m.Host("a")), testOptions(2, m.Host("b"))
	b.ListenAddress = "b"
	b.OnPull = func(_ context.Context, _ Peer, r PullRequest) (Source, error) {
		rest := data[r.Offset:]
		return Source{Length: int64(len(rest)), Reader: bytes.NewReader(rest)}, nil
	}
	if spoil != nil {
		spoil(&a, &b)
	}
	return pair(t, a, b)
}

// A pull that broke goes on where it was.
func TestPullResumes(t *testing.T) {
	m := newTestNetwork(t, 1)
	data := make([]byte, 3<<20)
	for i := range data {
		data[i] = byte(i * i >> 8)
	}
	one, _ := pullNodes(t, m, data, nil)
	var got []byte
	breaks := 0
	for len(got) < len(data) {
		p, err := one.Pull(testContext(t), 2, PullRequest{Offset: int64(len(got))})
		if err != nil {
			t.Fatal(err)
		}
		part := make([]byte, 700<<10)
		n, err := io.ReadFull(p, part)
		got = append(got, part[:n]...)
		if err == nil {
			m.Reset("a", "b")
			if n, err := io.ReadFull(p, make([]byte, 2<<20)); n < 2<<20 && !errors.Is(err, ErrConnLost) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
				t.Errorf("after the break: %d, %v", n, err)
			}
			breaks++
		}
		_ = p.Close()
	}
	if !bytes.Equal(got, data) || breaks < 3 {
		t.Errorf("%d bytes after %d breaks", len(got), breaks)
	}
}

func TestPullIsThrottled(t *testing.T) { synctest.Test(t, pullIsThrottled) }

func pullIsThrottled(t *testing.T) {
	m := newTestNetwork(t, 1)
	data := make([]byte, 60<<10)
	one, two := pullNodes(t, m, data, func(_, b *Options) { b.PullBytesPerSecond = 100 << 10 })
	pull := func(rate int64) time.Duration {
		began := time.Now()
		p, err := one.Pull(testContext(t), 2, PullRequest{BytesPerSecond: rate})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		if n, err := io.Copy(io.Discard, p); err != nil || n != int64(len(data)) {
			t.Errorf("%d, %v", n, err)
		}
		return time.Since(began)
	}
	if took := pull(0); took < 350*time.Millisecond || took > time.Second {
		t.Errorf("60 KiB at 100 KiB/s took %v", took)
	}
	two.SetPullRate(1) // taken as 64 KiB/s
	if rate := two.pullRate.rate(); rate != pullRateMin {
		t.Errorf("rate %d", rate)
	}
	two.SetPullRate(-1)
	if took := pull(pullRateMin); took < 500*time.Millisecond {
		t.Errorf("60 KiB at 64 KiB/s took %v", took)
	}
	if took := pull(0); took > 0 {
		t.Errorf("60 KiB at full speed took %v", took)
	}
}

func TestPullFailures(t *testing.T) { synctest.Test(t, pullFailures) }

func pullFailures(t *testing.T) {
	m := newTestNetwork(t, 1)
	var closed atomic.Int32
	hold := make(chan struct{})
	sources := map[string]func(r PullRequest) (Source, error){
		"short":    func(PullRequest) (Source, error) { return Source{Length: 10, Reader: strings.NewReader("short")}, nil },
		"stalls":   func(PullRequest) (Source, error) { return Source{Length: 10, Reader: blocked{hold}}, nil },
		"negative": func(PullRequest) (Source, error) { return Source{Length: -1}, nil },
		"nil":      func(PullRequest) (Source, error) { return Source{Length: 1}, nil },
		"more":     func(r PullRequest) (Source, error) { return Source{Length: r.Length + 1, Reader: endless{}}, nil },
		"empty":    func(PullRequest) (Source, error) { return Source{}, nil },
		"busy":     func(PullRequest) (Source, error) { return Source{}, ErrBusy },
	}
	one, _ := pullNodes(t, m, nil, func(a, b *Options) {
		a.PullStallTimeout, b.PullsMax = 200*time.Millisecond, 1
		b.OnPull = func(_ context.Context, _ Peer, r PullRequest) (Source, error) {
			s, err := sources[string(r.Payload)](r)
			if err == nil {
				s.Close = func() error { closed.Add(1); return nil }
			}
			return s, err
		}
	})
	ctx := testContext(t)
	pull := func(what string) error {
		p, err := one.Pull(ctx, 2, PullRequest{Payload: []byte(what), Length: 5000})
		if err != nil {
			return err
		}
		defer p.Close()
		_, err = io.Copy(io.Discard, p)
		return err
	}
	// The bound of one pull is free again once the last has ended at the other side.
	settled := func(what string) error {
		for {
			err := pull(what)
			if what == "busy" || !errors.Is(err, ErrBusy) {
				return err
			}
		}
	}
	var remote *RemoteError
	for _, what := range []string{"negative", "nil", "more"} {
		if err := settled(what); !errors.As(err, &remote) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := settled("short"); !errors.Is(err, ErrConnLost) || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
	if err := settled("empty"); err != nil {
		t.Error(err)
	}
	if err := settled("busy"); !errors.Is(err, ErrBusy) {
		t.Error(err)
	}
	if err := settled("stalls"); !errors.Is(err, ErrStalled) {
		t.Error(err)
	}
	if err := pull("empty"); !errors.Is(err, ErrBusy) {
		t.Errorf("above PullsMax: %v", err)
	}
	close(hold)
	if err := settled("empty"); err != nil {
		t.Error(err)
	}
	for closed.Load() < 6 {
		time.Sleep(time.Millisecond)
	}
	for _, r := range []PullRequest{{Offset: -1}, {Length: -1}, {BytesPerSecond: -1}} {
		if _, err := one.Pull(ctx, 2, r); err == nil {
			t.Errorf("%+v", r)
		}
	}
	if _, err := one.Pull(ctx, 2, PullRequest{Payload: make([]byte, 65<<10)}); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
}

// blocked gives nothing until its channel is closed.
type blocked struct{ until chan struct{} }

func (b blocked) Read([]byte) (int, error) { <-b.until; return 0, io.EOF }
