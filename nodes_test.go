package billet

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
)

// TestOpenTwice opens a directory that is open: in this process, by another spelling of its name, and in another process. The error names the
// holder, and opening works once that is gone, be it closed or killed.
func TestOpenTwice(t *testing.T) {
	dir := t.TempDir()
	config := Config{Dir: dir, JournalBytes: 1 << 20}
	refused := func(config Config, pid int) {
		t.Helper()
		l, err := Open(config)
		if err == nil {
			_ = l.Close()
			t.Fatal("a directory was opened twice")
		}
		if !errors.Is(err, ErrLocked) || Retriable(err) || !strings.Contains(err.Error(), fmt.Sprintf("process %d on ", pid)) || !strings.Contains(err.Error(), dir) {
			t.Fatalf("second open: %v", err)
		}
	}
	l := openTest(t, config)
	refused(config, os.Getpid())
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if other, err := Open(Config{Dir: link, JournalBytes: 1 << 20}); !errors.Is(err, ErrLocked) {
		if err == nil {
			_ = other.Close()
		}
		t.Fatalf("by another name: %v", err)
	}
	// The failed attempts did no harm.
	if err := l.CreateTopic(testContext(t), Topic{Name: "t"}); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for _, kill := range []bool{false, true} {
		c := startChild(t, "hold", dir, 0)
		c.expect(t, "open")
		refused(config, c.cmd.Process.Pid)
		if kill {
			c.kill()
		} else {
			c.end(t)
		}
		l = openTest(t, config)
		if _, err := l.Produce(testContext(t), Record{Topic: "t"}); err != nil {
			t.Fatalf("killed %v: %v", kill, err)
		}
		// Now this process holds it against the other.
		c = startChild(t, "hold", dir, 0)
		if !c.lines.Scan() || !strings.Contains(c.lines.Text(), fmt.Sprintf("process %d on ", os.Getpid())) {
			t.Errorf("the other process: %q", c.lines.Text())
		}
		c.kill()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestNodesFailApart runs two nodes in one process. The disk of one fails under load: the other one notices nothing.
func TestNodesFailApart(t *testing.T) {
	ctx := testContext(t)
	type side struct {
		l      *Log
		box    *eventBox
		g      *ledger
		err    atomic.Pointer[error] // first error of a produce
		news   chan struct{}
		broken atomic.Bool
	}
	sides := [2]*side{}
	for i := range sides {
		s := &side{box: newEventBox(), g: newLedger(), news: make(chan struct{}, 1)}
		sides[i] = s
		fault := func(op vfs.Op, _ string, _ int64, _ int) error {
			if s.broken.Load() && (op == vfs.OpWrite || op == vfs.OpSync) {
				return syscall.EIO
			}
			return nil
		}
		var err error
		config := Config{Dir: t.TempDir(), NodeID: 1, JournalBytes: 1 << 20, OnEvent: s.box.put}
		if s.l, err = open(config, seams{fs: vfs.Inject(vfs.OS, fault)}); err != nil {
			t.Fatal(err)
		}
		if err := s.l.CreateTopic(ctx, Topic{Name: "t", Partitions: 2}); err != nil {
			t.Fatal(err)
		}
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, s := range sides {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				v := ledgerValue("w", n, 100)
				at, err := s.l.Produce(ctx, Record{Topic: "t", Key: []byte("k"), Value: v})
				if err != nil {
					s.err.CompareAndSwap(nil, &err)
					signal(s.news)
					return
				}
				s.g.ack(at.Partition, at.Offset, string(v))
				signal(s.news)
			}
		})
	}
	until := func(s *side, cond func() bool) {
		t.Helper()
		for !cond() {
			select {
			case <-s.news:
			case <-ctx.Done():
				t.Fatal("it does not happen")
			}
		}
	}
	bad, good := sides[0], sides[1]
	until(bad, func() bool { return bad.g.len() > 100 })
	bad.broken.Store(true)
	until(bad, func() bool { return bad.err.Load() != nil })
	if err := *bad.err.Load(); !errors.Is(err, ErrAmbiguous) && !errors.Is(err, ErrPartitionFailed) {
		t.Errorf("the failed node: %v", err)
	}
	bad.box.wait(ctx, t, EventPartitionFailed)
	before := good.g.len()
	until(good, func() bool { return good.g.len() > before+200 || good.err.Load() != nil })
	if _, err := bad.l.ProduceBatch(ctx, "t", int32(PartitionForKey([]byte("k"), 2)), []Record{{}}); !errors.Is(err, ErrPartitionFailed) || Retriable(err) {
		t.Errorf("the failed partition: %v", err)
	}
	bad.g.check(ctx, t, bad.l, "t") // reading goes on
	if err := bad.l.Close(); err == nil {
		t.Error("closing the failed node told of no error")
	}
	before = good.g.len()
	until(good, func() bool { return good.g.len() > before+200 || good.err.Load() != nil })
	close(stop)
	wg.Wait()
	if err := good.err.Load(); err != nil {
		t.Errorf("the other node: %v", *err)
	}
	good.g.check(ctx, t, good.l, "t")
	if err := good.l.Close(); err != nil {
		t.Error(err)
	}
	for _, e := range good.box.events {
		if e.Kind.severe() || e.Kind == EventLeaderLost {
			t.Errorf("the other node's event: %v", e)
		}
	}
	bad.broken.Store(false)
	again := openTest(t, Config{Dir: bad.l.config.Dir, JournalBytes: 1 << 20})
	bad.g.check(ctx, t, again, "t")
}
