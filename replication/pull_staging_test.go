package replication

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/billetlog/billet/internal/vfs"
)

// A slot keeps as many snapshot records as it has room for, and the newest in any case.
func TestTrimRecords(t *testing.T) {
	record := func(index uint64, removed int) pb.Snapshot {
		s := pb.Snapshot{Index: index, Membership: pb.Membership{Removed: map[uint64]bool{}}}
		for i := range removed {
			s.Membership.Removed[replicaID(1, uint32(i+1))] = true
		}
		return s
	}
	for _, c := range []struct {
		removed []int
		want    string
	}{
		{nil, "[]"}, {[]int{1}, "[1]"}, {[]int{1, 1, 1}, "[1 2 3]"}, {[]int{1, 1, 1, 1}, "[2 3 4]"},
		{[]int{300, 300, 300}, "[2 3]"}, {[]int{2000, 2000}, "[2]"}, {[]int{2000, 1}, "[2]"},
	} {
		var records []pb.Snapshot
		for i, n := range c.removed {
			records = append(records, record(uint64(i+1), n))
		}
		var got []uint64
		for _, s := range trimRecords(records) {
			got = append(got, s.Index)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("of records with %v removed ids %v are kept, want %s", c.removed, got, c.want)
		}
	}
}

// clock is one that a test moves.
type clock struct {
	mu sync.Mutex
	at time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.at)
}

func (c *clock) move(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at += d
}

// An import that was cut off stays for whoever goes on with it, over a restart too, and is deleted when nobody does. Generations that do not count go
// when the replica is opened.
func TestUnfinishedImport(t *testing.T) {
	var c clock
	n := &testNode{t: t, fs: vfs.OS, dir: t.TempDir(), id: 1, now: c.now}
	n.open()
	p := n.start(testSpec(t, 1), true)
	dir := p.r.dir
	n.close()
	for _, name := range []string{"000000", "000002", "000007"} {
		if err := n.fs.MkdirAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	n.open()
	p = n.start(testSpec(t, 1), false)
	writable(t, p)
	names := func() string {
		list, err := n.fs.List(dir)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(list)
	}
	if got := names(); got != "[000001 000002 raft]" {
		t.Errorf("after the start there are %s", got)
	}
	p.tidy(c.now())
	if got := names(); got != "[000001 000002 raft]" {
		t.Errorf("at once there are %s", got)
	}
	leave, _ := p.intake.tryEnter(func(error) {}, false)
	c.move(stagingKept + time.Minute)
	p.tidy(c.now())
	if got := names(); got != "[000001 000002 raft]" {
		t.Errorf("while an import runs there are %s", got)
	}
	leave()
	p.tidy(c.now())
	if got := names(); got != "[000001 raft]" {
		t.Errorf("later there are %s", got)
	}
	n.close()
}

// While a snapshot is being pulled the entries behind it stay, whatever retention says; segments go when it is over.
func TestRetentionSparesPulls(t *testing.T) {
	n := newTestNode(t)
	spec := testSpec(t, 1)
	spec.Settings.SegmentBytes, spec.Settings.RetentionBytes = 64<<10, 64<<10
	p := n.start(spec, true)
	writable(t, p)
	value := string(make([]byte, 10<<10))
	for range 40 {
		if r := appendBatch(t, p, textBatch(t, value), AcksAll); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	const pinned = 10
	unpin := p.pin(pinned)
	p.retain(testContext(t), time.Now())
	if first := p.r.removedTo.Load(); first > pinned {
		t.Errorf("entries are gone up to %d, and %d is pinned", first, pinned)
	}
	unpin()
	eventually(t, "after the pull entries are gone", func() bool { // a record that is under way makes retention wait for its next turn
		p.retain(testContext(t), time.Now())
		return p.r.removedTo.Load() > pinned && p.StartOffset() > 0
	})
	n.close()
}

// A replica that is being started is left alone. The race detector sees it.
func TestTidyLeavesWhatIsBeingStarted(t *testing.T) {
	n := memNode1(t, vfs.NewMem())
	defer n.close()
	p := n.host.newPartition(testSpec(t, 1))
	defer p.cancel()
	p.life.Lock()
	defer p.life.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.tidy(time.Now())
	}()
	p.r = newReplica(n.host, p.spec.key(), p)
	p.r.untidy.Store(true)
	<-done
	if !p.r.untidy.Load() {
		t.Error("it was tidied")
	}
}
