package billet

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// smallDisk mounts a file system in memory of so many bytes until the end of the test.
func smallDisk(t *testing.T, size int) string {
	t.Helper()
	dir := t.TempDir()
	err := unix.Mount("billet-test", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d", size))
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		t.Skipf("mounting a small tmpfs needs root with the right to mount: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v: is a file still open?", err)
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
	return dir
}

// fillDisk writes a foreign file until not a byte is free.
func fillDisk(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		if _, err := f.Write(chunk); errors.Is(err, unix.ENOSPC) {
			chunk = chunk[:len(chunk)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

const fullMiB = 1 << 20

// TestDiskFullRetention fills a real disk down to the reserve: records are refused, reads go on, and a bound on the bytes kept makes room.
func TestDiskFullRetention(t *testing.T) {
	ctx := testContext(t)
	box := newEventBox()
	config := Config{Dir: filepath.Join(smallDisk(t, 48*fullMiB), "log"), JournalBytes: 1 << 20, DiskReserve: 8 * fullMiB,
		RetentionCheckInterval: 20 * time.Millisecond, OnEvent: box.put}
	l := openTest(t, config)
	if err := l.CreateTopic(ctx, Topic{Name: "t", Config: map[string]string{"segment.bytes": "1048576"}}); err != nil {
		t.Fatal(err)
	}
	g := newLedger()
	n, err := 0, error(nil)
	for err == nil {
		var at Offset
		v := ledgerValue("sync", n, 100<<10)
		if at, err = l.Produce(ctx, Record{Topic: "t", Value: v}); err == nil {
			g.ack(at.Partition, at.Offset, string(v))
			n++
		}
	}
	if !errors.Is(err, ErrDiskFull) || !Retriable(err) || n < 100 {
		t.Fatalf("after %d records: %v", n, err)
	}
	t.Logf("%d records, then: %v", n, err)
	box.wait(ctx, t, EventDiskFull)
	if m := l.Metrics(); !m.DiskFull || m.DiskFree > 8*fullMiB || m.DiskFree < 4*fullMiB {
		t.Errorf("metrics: full %v, %d free", m.DiskFull, m.DiskFree)
	}
	p, err := l.NewProducer(ProducerConfig{DeliveryTimeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.ProduceSync(ctx, Record{Topic: "t", Value: ledgerValue("early", 0, 10)}); !errors.Is(err, ErrDiskFull) || !errors.Is(err, ErrTimeout) || errors.Is(err, ErrAmbiguous) {
		t.Fatalf("producer: %v", err)
	}
	if got := g.check(ctx, t, l, "t"); got != n {
		t.Fatalf("%d records are read on the full disk, %d were written", got, n)
	}
	// A producer with time waits until retention has made room.
	patient, err := l.NewProducer(ProducerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	const more = 20
	for i := range more {
		v := ledgerValue("patient", i, 100<<10)
		err := patient.Produce(ctx, Record{Topic: "t", Value: v}, func(at Offset, err error) {
			if err != nil {
				t.Error(err)
				return
			}
			g.ack(at.Partition, at.Offset, string(v))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := l.AlterTopic(ctx, "t", Alter{Set: map[string]string{"retention.bytes": "4194304"}}); err != nil {
		t.Fatalf("alter on the full disk: %v", err)
	}
	box.wait(ctx, t, EventDiskFree)
	if err := patient.Close(); err != nil {
		t.Fatal(err)
	}
	// Retention keeps pace from here on: more than the disk's worth goes through.
	refused, begin := 0, time.Now()
	for i := n; i < n+more*30; i++ {
		v := ledgerValue("sync", i, 100<<10)
		at, err := l.Produce(ctx, Record{Topic: "t", Value: v})
		if errors.Is(err, ErrDiskFull) {
			i--
			refused++
			continue // faster than retention
		}
		if err != nil {
			t.Fatal(err)
		}
		g.ack(at.Partition, at.Offset, string(v))
	}
	t.Logf("%d records with retention in %v, %d refusals", more*30, time.Since(begin).Round(time.Millisecond), refused)
	g.check(ctx, t, l, "t")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l = openTest(t, config)
	g.check(ctx, t, l, "t")
	if at, err := l.Produce(ctx, Record{Topic: "t", Value: ledgerValue("last", 0, 10)}); err != nil || at.Offset != int64(n+more*31) {
		t.Fatalf("after reopening: %+v, %v", at, err)
	}
}

// TestDiskFullToTheLastByte has a foreign file take all space while records are written, several times: writes fail in the middle with no space
// left. When the file is gone all goes on by itself.
func TestDiskFullToTheLastByte(t *testing.T) {
	for _, fsync := range []Fsync{FsyncCommit, FsyncInterval} {
		for _, journal := range []int64{1 << 20, -1} {
			t.Run(fmt.Sprintf("fsync=%s/journal=%d", fsync, journal), func(t *testing.T) { diskFullToTheLastByte(t, fsync, journal) })
		}
	}
}

func diskFullToTheLastByte(t *testing.T, fsync Fsync, journal int64) {
	ctx := testContext(t)
	box := newEventBox()
	disk := smallDisk(t, 48*fullMiB)
	config := Config{Dir: filepath.Join(disk, "log"), JournalBytes: journal, DiskReserve: -1, RetentionCheckInterval: 20 * time.Millisecond, OnEvent: box.put}
	l := openTest(t, config)
	topic := Topic{Name: "t", Partitions: 3, Fsync: fsync, RetentionBytes: 4 << 20,
		Config: map[string]string{"segment.bytes": "1048576", "flush.ms": "40"}}
	if err := l.CreateTopic(ctx, topic); err != nil {
		t.Fatal(err)
	}
	g := newLedger()
	load := startFullLoad(ctx, t, l, g)
	foreign := filepath.Join(disk, "foreign")
	for round := range 3 {
		load.progress()
		fillDisk(t, foreign)
		load.refused()
		// Reading goes on.
		p, err := l.Partition(ctx, "t", 0)
		if err != nil {
			t.Fatal(err)
		}
		start := p.StartOffset()
		if got, err := p.Read(ctx, start, 10); err != nil && !errors.Is(err, ErrOffsetOutOfRange) || err == nil && len(got) == 0 && p.HighWatermark() > start {
			t.Errorf("round %d: read on the full disk: %d records, %v", round, len(got), err)
		}
		if err := os.Remove(foreign); err != nil {
			t.Fatal(err)
		}
	}
	load.progress()
	load.stop()
	recovered(ctx, t, l)
	g.check(ctx, t, l, "t")
	// Closed and opened while it is full. Both may fail for that reason; what counts is what is there afterwards.
	fillDisk(t, foreign)
	if err := l.Close(); err != nil {
		t.Logf("close on the full disk: %v", err)
	}
	if full, err := Open(config); err != nil {
		t.Logf("open on the full disk: %v", err)
		if !errors.Is(err, ErrDiskFull) || !Retriable(err) {
			t.Errorf("open on the full disk: %v", err)
		}
	} else {
		_, err := full.Produce(ctx, Record{Topic: "t", Value: ledgerValue("full", 0, 10<<10)})
		// Closing and retention may have made a little room.
		if err != nil && !errors.Is(err, ErrDiskFull) && !errors.Is(err, ErrAmbiguous) {
			t.Errorf("produce on the full disk: %v", err)
		}
		if err := full.Close(); err != nil {
			t.Logf("close on the full disk: %v", err)
		}
	}
	if err := os.Remove(foreign); err != nil {
		t.Fatal(err)
	}
	l = openTest(t, config)
	g.check(ctx, t, l, "t")
	if _, err := l.Produce(ctx, Record{Topic: "t", Value: ledgerValue("last", 0, 10)}); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []EventKind{EventQuarantined, EventInternal} {
		if box.has(kind) {
			t.Errorf("event %q", kind)
		}
	}
}

// recovered waits until all partitions take records again.
func recovered(ctx context.Context, t *testing.T, l *Log) {
	t.Helper()
	for n := range int32(3) {
		for i := 0; ; i++ {
			_, err := l.ProduceBatch(ctx, "t", n, []Record{{Value: ledgerValue(fmt.Sprint("after", n), i, 0)}})
			if err == nil {
				break
			}
			if !Retriable(err) {
				t.Fatal(err)
			}
		}
	}
}

// fullLoad writes to topic t by Produce and by a Producer until it is stopped, no more than it is allowed to, so that it is always the foreign
// file that fills the disk: without a bound only once it has.
type fullLoad struct {
	t    *testing.T
	ctx  context.Context
	l    *Log
	g    *ledger
	done context.CancelFunc
	wg   sync.WaitGroup

	mu struct {
		sync.Mutex
		full    int // refusals for want of space
		allowed int // bytes that may be stored yet
		more    chan struct{}
	}
	news chan struct{}
}

func startFullLoad(ctx context.Context, t *testing.T, l *Log, g *ledger) *fullLoad {
	f := &fullLoad{t: t, l: l, g: g, news: make(chan struct{}, 1)}
	f.ctx, f.done = context.WithCancel(ctx)
	f.mu.more = make(chan struct{})
	p, err := l.NewProducer(ProducerConfig{DeliveryTimeout: 200 * time.Millisecond, BufferBytes: 1 << 20, Compression: LZ4, RetryBackoffMax: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	f.wg.Go(func() {
		for n := 0; f.may(); n++ {
			v := ledgerValue("async", n, 100+n%9*1000)
			err := p.Produce(f.ctx, Record{Topic: "t", Key: []byte("async"), Value: v}, func(at Offset, err error) { f.note(at, v, err) })
			if err != nil {
				f.note(Offset{}, v, err)
			}
		}
		_ = p.Close()
	})
	for w := range 2 {
		writer := fmt.Sprint("sync", w)
		f.wg.Go(func() {
			for n := 0; f.may(); n++ {
				v := ledgerValue(writer, n, 100+n%7*(10<<10))
				at, err := l.Produce(f.ctx, Record{Topic: "t", Key: []byte(writer), Value: v})
				f.note(at, v, err)
			}
		})
	}
	return f
}

func (f *fullLoad) note(at Offset, v []byte, err error) {
	switch {
	case err == nil:
		f.g.ack(at.Partition, at.Offset, string(v))
		f.mu.Lock()
		f.mu.allowed -= len(v)
		f.mu.Unlock()
	case errors.Is(err, ErrDiskFull):
		f.mu.Lock()
		f.mu.full++
		f.mu.Unlock()
	case errors.Is(err, ErrAmbiguous), errors.Is(err, ErrTimeout), errors.Is(err, ErrNotLeader), f.ctx.Err() != nil, errors.Is(err, ErrClosed):
	default:
		f.t.Errorf("produce: %v", err)
	}
	signal(f.news)
}

// allow lets so many bytes more be stored.
func (f *fullLoad) allow(bytes int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.allowed = max(f.mu.allowed, 0) + bytes
	close(f.mu.more)
	f.mu.more = make(chan struct{})
}

// may waits until another record may be written; it returns false when it is time to stop.
func (f *fullLoad) may() bool {
	for f.ctx.Err() == nil {
		f.mu.Lock()
		allowed, more := f.mu.allowed > 0, f.mu.more
		f.mu.Unlock()
		if allowed {
			return true
		}
		select {
		case <-more:
		case <-f.ctx.Done():
		}
	}
	return false
}

// progress waits for more acknowledgements.
func (f *fullLoad) progress() {
	f.t.Helper()
	f.allow(4 * fullMiB)
	f.until("acknowledgements", f.g.len, 100)
}

// refused waits for more refusals for want of space.
func (f *fullLoad) refused() {
	f.t.Helper()
	f.allow(math.MaxInt32) // the disk is full: there is room in what is allocated already, and in what retention frees
	f.until("refusals", func() int {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.mu.full
	}, 5)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.allowed = 0
}

func (f *fullLoad) until(what string, count func() int, more int) {
	f.t.Helper()
	for want := count() + more; count() < want; {
		select {
		case <-f.news:
		case <-f.ctx.Done():
			f.done()
			f.wg.Wait()
			info, _ := f.l.Topic(context.Background(), "t")
			for _, p := range info.Partitions {
				f.t.Logf("%+v", p)
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			f.t.Fatalf("no more %s; %d acknowledged, %d refused, %d bytes allowed", what, f.g.len(), f.mu.full, f.mu.allowed)
		}
	}
}

func (f *fullLoad) stop() {
	f.done()
	f.wg.Wait()
}
