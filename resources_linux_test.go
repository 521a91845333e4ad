package billet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/billetlog/billet/internal/vfs"
)

// openFiles lists what this process has open below dir.
func openFiles(t testing.TB, dir string) []string {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, fd := range fds {
		name, err := os.Readlink(filepath.Join("/proc/self/fd", fd.Name()))
		if err == nil && strings.HasPrefix(name, dir+"/") {
			out = append(out, strings.TrimPrefix(name, dir+"/"))
		}
	}
	return out
}

// heapBytes is the bytes in use after a collection.
func heapBytes() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// TestCloseReleasesAll uses everything there is and closes, in several ways: no file, goroutine or lock is left.
func TestCloseReleasesAll(t *testing.T) {
	for name, end := range map[string]func(l *Log, p *Producer, c *Consumer) error{
		"in order":      func(l *Log, p *Producer, c *Consumer) error { return errors.Join(p.Close(), c.Close(), l.Close()) },
		"the log alone": func(l *Log, _ *Producer, _ *Consumer) error { return l.Close() },
		"the log before all": func(l *Log, p *Producer, c *Consumer) error {
			return errors.Join(l.Close(), p.Close(), c.Close(), l.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := goleak.IgnoreCurrent()
			dir := t.TempDir()
			config := Config{Dir: dir, JournalBytes: 1 << 20, RetentionCheckInterval: 10 * time.Millisecond, OnEvent: func(Event) {}}
			l, p, c := useAll(t, config)
			if n := len(openFiles(t, dir)); n == 0 {
				t.Error("an open log has no file open")
			}
			if err := end(l, p, c); err != nil {
				t.Error(err)
			}
			if left := openFiles(t, dir); len(left) > 0 {
				t.Errorf("open after Close: %v", left)
			}
			if err := goleak.Find(before); err != nil {
				t.Error(err)
			}
			lock, err := vfs.OS.Lock(filepath.Join(dir, lockName), "test")
			if err != nil {
				t.Fatalf("locked after Close: %v", err)
			}
			if err := lock.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// useAll opens a log and does all kinds of things with it.
func useAll(t *testing.T, config Config) (*Log, *Producer, *Consumer) {
	t.Helper()
	ctx := testContext(t)
	l := openTest(t, config)
	topic := Topic{Name: "t", Partitions: 3, RetentionBytes: 128 << 10, Config: map[string]string{"segment.bytes": "65536"}}
	err := errors.Join(l.CreateTopic(ctx, topic), l.CreateTopic(ctx, Topic{Name: "gone", Partitions: 2}))
	if err != nil {
		t.Fatal(err)
	}
	p, err := l.NewProducer(ProducerConfig{Compression: Zstd})
	if err != nil {
		t.Fatal(err)
	}
	c, err := l.NewConsumer(ConsumerConfig{Topics: []string{"t", "gone"}, OnOutOfRange: ResetToEarliest})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		name := "t"
		if i%10 == 0 {
			name = "gone"
		}
		if err := p.Produce(ctx, Record{Topic: name, Value: ledgerValue("a", i, 1000)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Poll(ctx); err != nil {
		t.Fatal(err)
	}
	at, err := l.Partition(ctx, "t", 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = at.OffsetForTime(ctx, time.Now())
	err = errors.Join(err, l.AddPartitions(ctx, "t", 4), l.AlterTopic(ctx, "t", Alter{Set: map[string]string{"billet.fsync": "interval"}}), l.DeleteTopic(ctx, "gone"))
	if err != nil {
		t.Fatal(err)
	}
	for n := range int32(4) {
		if _, err := l.ProduceBatch(ctx, "t", n, []Record{{Value: []byte("x")}}); err != nil {
			t.Fatal(err)
		}
	}
	return l, p, c
}

// TestCloseAfterFailureReleasesAll closes a log whose disk fails, from operation to operation.
func TestCloseAfterFailureReleasesAll(t *testing.T) {
	ctx := testContext(t)
	for _, n := range []int{1, 2, 5, 20, 60} {
		before := goleak.IgnoreCurrent()
		dir := t.TempDir()
		l := openTest(t, Config{Dir: dir, JournalBytes: 1 << 20})
		if err := l.CreateTopic(ctx, Topic{Name: "t"}); err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		pulled := vfs.FailFrom(n, vfs.OfKind(vfs.OpWrite, vfs.OpSync, vfs.OpSyncDir, vfs.OpRename), syscall.EIO)
		l, err := open(Config{Dir: dir, JournalBytes: 1 << 20}, seams{fs: vfs.Inject(vfs.OS, pulled.Fault)})
		if err == nil {
			for range 10 {
				if _, err = l.Produce(ctx, Record{Topic: "t", Value: []byte("v")}); err != nil {
					break
				}
			}
			err = errors.Join(err, l.Close())
		}
		if left := openFiles(t, dir); len(left) > 0 {
			t.Errorf("%d: open after Close (%v): %v", n, err, left)
		}
		if err := goleak.Find(before); err != nil {
			t.Errorf("%d: %v", n, err)
		}
		again := openTest(t, Config{Dir: dir, JournalBytes: 1 << 20})
		if err := again.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestOpenCloseCycles opens and closes a log many times: neither files nor memory pile up, in the process or on disk.
func TestOpenCloseCycles(t *testing.T) {
	cycles := 200
	if testing.Short() {
		cycles = 40
	}
	dir := t.TempDir()
	config := Config{Dir: dir, JournalBytes: 1 << 20}
	cycle := func(n int64) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // for one: how many a minute takes is the disk's affair
		defer cancel()
		l, err := Open(config)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			if err := l.CreateTopic(ctx, Topic{Name: "t", Partitions: 2}); err != nil {
				t.Fatal(err)
			}
		}
		p, err := l.NewProducer(ProducerConfig{Partitioner: ManualPartitioner})
		if err != nil {
			t.Fatal(err)
		}
		if at, err := p.ProduceSync(ctx, Record{Topic: "t", Partition: int32(n % 2), Value: fmt.Append(nil, n)}); err != nil || at.Offset != n/2 {
			t.Fatalf("cycle %d: %+v, %v", n, at, err)
		}
		if err := l.Close(); err != nil {
			t.Fatalf("cycle %d: %v", n, err)
		}
	}
	warm := int64(cycles / 4)
	for n := range warm {
		cycle(n)
	}
	bytes, size := heapBytes(), diskUse(t, dir)
	for n := warm; n < int64(cycles); n++ {
		cycle(n)
		if left := openFiles(t, dir); len(left) > 0 {
			t.Fatalf("cycle %d: open after Close: %v", n, left)
		}
	}
	grown, grownSize := int64(heapBytes())-int64(bytes), diskUse(t, dir)-size
	t.Logf("%d cycles: heap %+d bytes from %d, disk %+d bytes from %d", int64(cycles)-warm, grown, bytes, grownSize, size)
	if grown > 4<<20 {
		t.Errorf("the heap grew by %d bytes", grown)
	}
	if grownSize > 4<<20 {
		t.Errorf("the files grew by %d bytes", grownSize)
	}
}

// diskUse is what the files below dir take, in bytes.
func diskUse(t testing.TB, dir string) (bytes int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(_ string, e os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && !e.IsDir() {
			bytes += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return bytes
}

// TestReadersOutliveDeletion deletes segments, and then the topic, while a consumer holds records of them: what it has stays right, and the
// files go when it moves on.
func TestReadersOutliveDeletion(t *testing.T) {
	ctx := testContext(t)
	dir := t.TempDir()
	box := newEventBox()
	l := openTest(t, Config{Dir: dir, JournalBytes: 1 << 20, RetentionCheckInterval: 10 * time.Millisecond, OnEvent: box.put})
	if err := l.CreateTopic(ctx, Topic{Name: "t", Config: map[string]string{"segment.bytes": "65536"}}); err != nil {
		t.Fatal(err)
	}
	const n = 300
	for i := range n {
		if _, err := l.Produce(ctx, Record{Topic: "t", Value: ledgerValue("a", i, 2000)}); err != nil {
			t.Fatal(err)
		}
	}
	c, err := l.NewConsumer(ConsumerConfig{Topics: []string{"t"}, MaxPollRecords: 3})
	if err != nil {
		t.Fatal(err)
	}
	check := func(records []Record) int64 {
		for _, r := range records {
			if string(r.Value) != string(ledgerValue("a", int(r.Offset), 2000)) {
				t.Fatalf("offset %d holds %.20q", r.Offset, r.Value)
			}
		}
		return records[len(records)-1].Offset + 1
	}
	held, err := c.Poll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	next := check(held)
	if err := l.AlterTopic(ctx, "t", Alter{Set: map[string]string{"retention.bytes": "65536"}}); err != nil {
		t.Fatal(err)
	}
	start := box.wait(ctx, t, EventRetention).Offset
	if start <= next {
		t.Fatalf("retention deleted up to %d", start)
	}
	check(held)
	// What was read ahead is served; then comes the gap, told once with both ends.
	var out *OffsetError
	for {
		records, err := c.Poll(ctx)
		if errors.As(err, &out) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		next = check(records)
	}
	if out.Offset != next || out.Start < start || out.End != n || out.Topic != "t" {
		t.Errorf("%+v after %d, retention deleted up to %d", out, next, start)
	}
	if err := c.SeekToBeginning("t", 0); err != nil {
		t.Fatal(err)
	}
	held, err = c.Poll(ctx)
	if err != nil {
		t.Fatal(err)
	}
	check(held)
	if err := l.DeleteTopic(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	check(held)
	for {
		records, err := c.Poll(ctx)
		if errors.Is(err, ErrUnknownTopic) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		check(records)
	}
	for _, name := range openFiles(t, dir) {
		if strings.Contains(name, "(deleted)") {
			t.Errorf("%s is open after the last reader left", name)
		}
	}
}
