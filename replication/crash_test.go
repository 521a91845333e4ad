package replication

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
)

// ledger is what producers were told.
type ledger struct {
	mu    sync.Mutex
	acked map[int64]string
	sent  map[string]bool
}

func newLedger() *ledger { return &ledger{acked: map[int64]string{}, sent: map[string]bool{}} }

func (l *ledger) ack(at int64, v string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acked[at] = v
}

func (l *ledger) send(v string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[v] = true
}

func (l *ledger) snapshot() map[int64]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[int64]string, len(l.acked))
	for k, v := range l.acked {
		out[k] = v
	}
	return out
}

// load produces from several goroutines until stop is closed or the partition takes no more.
func (l *ledger) load(t testing.TB, p *Partition, prefix string, stop <-chan struct{}) {
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			done := make(chan AppendResult, 1)
			big := make([]byte, 90<<10) // goes past the journal
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				v := fmt.Sprintf("%s-%d-%d", prefix, w, i)
				if w == 2 {
					v += string(big[:rand.IntN(len(big))])
				}
				l.send(v)
				p.Append(textBatch(t, v), AppendOptions{Acks: AcksAll}, func(r AppendResult) { done <- r })
				r := <-done
				switch {
				case r.Err == nil:
					l.ack(r.Offset, v)
				case errors.Is(r.Err, ErrBusy):
				default:
					return
				}
			}
		})
	}
	wg.Wait()
}

// check holds a partition against what was acknowledged: all of it is there, at its offset, and nothing that nobody sent.
func (l *ledger) check(t testing.TB, p *Partition, acked map[int64]string) {
	t.Helper()
	got := values(t, p, 0)
	for at, v := range acked {
		if at >= int64(len(got)) {
			t.Fatalf("offset %d was acknowledged, the log ends at %d", at, len(got))
		}
		if got[at] != v {
			t.Fatalf("offset %d holds %.40q, acknowledged was %.40q", at, got[at], v)
		}
	}
	seen := map[string]bool{}
	for at, v := range got {
		if !l.sent[v] {
			t.Fatalf("offset %d holds %.40q, which nobody sent", at, v)
		}
		if seen[v] {
			t.Fatalf("offset %d holds %.40q a second time", at, v)
		}
		seen[v] = true
	}
}

func memNode1(t testing.TB, fs vfs.FS) *testNode {
	if err := fs.MkdirAll("/data"); err != nil {
		t.Fatal(err)
	}
	if err := fs.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	n := &testNode{t: t, fs: fs, dir: "/data", id: 1}
	n.open()
	return n
}

// Power fails at random moments under load, and what was not synced is lost, all of it or some.
func TestPowerLoss(t *testing.T) {
	rounds := 15
	if testing.Short() {
		rounds = 4
	}
	rng := rand.New(rand.NewPCG(uint64(rounds), 7))
	fs := vfs.NewMem()
	l := newLedger()
	spec := testSpec(t, 1)
	spec.Settings.SegmentBytes = 256 << 10
	for round := range rounds {
		n := memNode1(t, fs)
		p := n.start(spec, round == 0)
		if s, cause := p.State(); s == StateQuarantined {
			t.Fatalf("round %d: %v", round, cause)
		}
		writable(t, p)
		l.check(t, p, l.snapshot())
		stop := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { l.load(t, p, fmt.Sprint(round), stop) })
		waitHW(t, p, p.HighWatermark()+1+rng.Int64N(120))
		keep := [...]float64{0, 0.3, 0.8}[round%3]
		acked := l.snapshot() // before the power fails
		clone := fs.CrashClone(vfs.CrashOptions{Rand: rand.New(rand.NewPCG(uint64(round), 3)), KeepUnsynced: keep})
		close(stop)
		wg.Wait()
		n.close()
		fs = clone
		l.mu.Lock()
		l.acked = acked
		l.mu.Unlock()
	}
	n := memNode1(t, fs)
	p := n.start(spec, false)
	writable(t, p)
	l.check(t, p, l.snapshot())
	n.close()
}

// Every single I/O operation fails once, at every point of a run. Nothing dies, and what was acknowledged is there after a power cut.
func TestEveryOperationFails(t *testing.T) {
	kinds := []struct {
		name string
		op   []vfs.Op
		err  error
	}{
		{"write", []vfs.Op{vfs.OpWrite}, errors.New("EIO")},
		{"sync", []vfs.Op{vfs.OpSync}, errors.New("EIO")},
		{"full", []vfs.Op{vfs.OpWrite, vfs.OpCreate, vfs.OpTruncate, vfs.OpPreallocate}, errNoSpace},
		{"names", []vfs.Op{vfs.OpCreate, vfs.OpRename, vfs.OpRemove, vfs.OpSyncDir, vfs.OpTruncate}, errors.New("EIO")},
	}
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			for i := 1; ; i++ {
				if testing.Short() && i > 6 {
					break
				}
				if !faultRun(t, i, k.op, k.err) {
					return
				}
			}
		})
	}
}

// faultRun runs with the i-th operation failing; false when the run had fewer.
func faultRun(t *testing.T, i int, ops []vfs.Op, cause error) bool {
	mem := vfs.NewMem()
	spec := testSpec(t, 1)
	spec.Settings.SegmentBytes = 64 << 10
	prep := memNode1(t, mem) // the files exist before anything fails
	p := prep.start(spec, true)
	writable(t, p)
	prep.close()

	trigger := vfs.FailNth(i, vfs.OfKind(ops...), cause)
	n := &testNode{t: t, fs: vfs.Inject(mem, trigger.Fault), dir: "/data", id: 1}
	l := newLedger()
	identity, err := identify(n.fs, n.dir, 1)
	if err == nil {
		n.host, err = OpenHost(HostConfig{FS: n.fs, Dir: n.dir, Node: identity, JournalBytes: 2 << 20})
	}
	if err == nil {
		if p, err = n.host.StartPartition(spec, false); err == nil {
			faultLoad(t, p, l)
		}
		_ = n.host.Close(testContext(t)) // an error here is the injected one
	}
	if err != nil && !trigger.Fired() {
		t.Fatalf("failure %d: %v", i, err)
	}
	acked := l.snapshot()
	again := memNode1(t, mem.CrashClone(vfs.CrashOptions{}))
	p = again.start(spec, false)
	if s, cause := p.State(); s == StateQuarantined {
		t.Fatalf("failure %d: after the fault the log does not open: %v", i, cause)
	}
	writable(t, p)
	l.check(t, p, acked)
	again.close()
	return trigger.Fired()
}

// faultLoad produces a fixed number of batches, small and large, and stops at the first that is refused for good.
func faultLoad(t *testing.T, p *Partition, l *ledger) {
	if s, _ := p.State(); s == StateQuarantined {
		return
	}
	if p.Writable(testContext(t)) != nil {
		return
	}
	for j := range 12 {
		size := 10
		if j%3 == 2 {
			size = 70 << 10
		}
		v := fmt.Sprint("v", j, "-", string(make([]byte, size)))
		l.send(v)
		r := appendBatch(t, p, textBatch(t, v), AcksAll)
		if r.Err == nil {
			l.ack(r.Offset, v)
			continue
		}
		if s, _ := p.State(); s != StateLeader {
			return
		}
	}
	p.checkpoint(true)
	p.retain(testContext(t), p.host.now())
}

// A failed fsync is never tried again: the replica takes no more although the disk works again.
func TestFailedSyncLatches(t *testing.T) {
	mem := vfs.NewMem()
	armed := false
	var mu sync.Mutex
	fs := vfs.Inject(mem, func(op vfs.Op, name string, _ int64, _ int) error {
		mu.Lock()
		defer mu.Unlock()
		if armed && op == vfs.OpSync {
			armed = false
			return errors.New("EIO")
		}
		return nil
	})
	n := memNode1(t, fs)
	p := n.start(testSpec(t, 1), true)
	other := testSpec(t, 1)
	other.Shard, other.Partition = 3, 1
	q := n.start(other, true)
	writable(t, p)
	writable(t, q)
	if r := appendBatch(t, p, textBatch(t, "before"), AcksAll); r.Err != nil {
		t.Fatal(r.Err)
	}
	mu.Lock()
	armed = true
	mu.Unlock()
	big := sizedBatch(t, 1, directBytes+1) // its own fdatasync
	if r := appendBatch(t, p, big, AcksAll); r.Err == nil {
		t.Fatal("an append whose fsync failed was acknowledged")
	}
	if err := p.Writable(testContext(t)); !errors.Is(err, ErrFailed) {
		t.Fatalf("after a failed fsync: %v", err)
	}
	if r := appendBatch(t, p, textBatch(t, "after"), AcksAll); !errors.Is(r.Err, ErrFailed) {
		t.Fatalf("append after a failed fsync: %+v", r)
	}
	if r := appendBatch(t, q, textBatch(t, "other"), AcksAll); r.Err != nil {
		t.Fatalf("another partition: %v", r.Err)
	}
	if got := values(t, p, 0); fmt.Sprint(got) != "[before]" {
		t.Errorf("read %v", got)
	}
	_ = n.host.Close(testContext(t)) // reports the failed replica
	n.fs = mem
	n.open()
	p = n.start(testSpec(t, 1), false)
	writable(t, p)
	if got := values(t, p, 0); len(got) < 1 || got[0] != "before" {
		t.Errorf("after reopen: %v", got)
	}
	n.close()
}
