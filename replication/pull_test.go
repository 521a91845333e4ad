package replication

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/transport"
)

// transfer makes a node lead.
func (c *trio) transfer(to int) {
	c.t.Helper()
	deadline := time.Now().Add(testTimeout)
	for time.Now().Before(deadline) {
		l := c.leader(-1)
		if l == to {
			return
		}
		g := &c.nodes[l].host.guard
		g.mu.RLock()
		err := g.nh.RequestLeaderTransfer(2, c.parts[to].spec.Replica)
		g.mu.RUnlock()
		if err != nil && !errors.Is(err, dragonboat.ErrSystemBusy) { // the request before is not taken yet
			c.t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		_ = c.parts[to].Writable(ctx)
		cancel()
	}
	c.dump()
	c.t.Fatalf("node %d does not lead", to+1)
}

// A learner joins a group that has data, gets all of it, is promoted, and leads, with restarts and snapshots of its own in between, in every order
// that makes a difference to what it is told at its start.
func TestLearnerJoins(t *testing.T) {
	t.Parallel() // it waits, mostly
	type step int
	const (
		restart step = iota
		record
		promote
	)
	for name, steps := range map[string][]step{
		"promote":                 {promote},
		"promote restart":         {promote, restart},
		"restart promote":         {restart, promote},
		"record promote restart":  {record, promote, restart, restart},
		"promote record restart":  {promote, record, restart},
		"restart record promote":  {restart, record, promote, restart, record, restart},
		"promote restart restart": {promote, restart, restart},
	} {
		t.Run(name, func(t *testing.T) {
			c := newTrio(t)
			defer c.close()
			hw := c.load(-1, 50, 1000)
			i := c.joinNode(vfs.OS, nil)
			e := c.nodes[i].firstEvent(EventCatchUpDone)
			if e.Bytes < 50*1000 || e.Duration <= 0 {
				t.Errorf("the event says %d bytes in %v", e.Bytes, e.Duration)
			}
			waitHW(t, c.parts[i], hw)
			for n, s := range steps {
				switch s {
				case restart:
					c.nodes[i].close()
					c.nodes[i].open()
					c.startLearner(i, nil, false)
				case record:
					if err := c.nodes[i].host.guard.snapshot(testContext(t), 2, 0, testTimeout); err != nil && !errors.Is(err, errRecorded) {
						t.Fatal(err)
					}
				case promote:
					c.change(func(p *Partition, ctx context.Context) error { return p.Promote(ctx, c.learner(i), int32(i+1)) })
				}
				_, at := c.produce(-1, fmt.Sprint("step", n))
				hw = at + 1
				waitHW(t, c.parts[i], hw)
			}
			c.transfer(i)
			hw = c.load(-1, 5, 100)
			c.same(hw)
			for n, node := range c.nodes {
				if node.host.parked.Load() != 0 {
					t.Errorf("node %d has a parked worker", n+1)
				}
			}
		})
	}
}

// A follower that is so far behind that its leader gave up the entries gets the log as segments, while the leader takes more.
func TestLaggingFollower(t *testing.T) {
	t.Parallel() // it waits, mostly
	c := newTrio(t)
	defer c.close()
	c.load(-1, 30, 1000)
	l := c.leader(-1)
	f := (l + 1) % 3
	waitHW(t, c.parts[f], c.parts[l].HighWatermark())
	reader := c.parts[f].NewCursor()
	defer reader.Close()
	if _, err := reader.Read(nil, 3, 1000); err != nil {
		t.Fatal(err)
	}
	c.net.isolate(int32(f+1), true)
	c.load(f, 100, 1000)
	c.raiseFirstIndex(f)
	before := c.parts[f].HighWatermark()
	c.net.isolate(int32(f+1), false)
	stop, written := make(chan struct{}), make(chan int64, 1)
	var wg sync.WaitGroup
	wg.Go(func() {
		end := int64(0)
		for n := 0; ; n++ {
			select {
			case <-stop:
				written <- end
				return
			default:
				_, at := c.produce(-1, fmt.Sprint("during", n))
				end = at + 1
			}
		}
	})
	e := c.nodes[f].firstEvent(EventCatchUpDone)
	close(stop)
	wg.Wait()
	hw := <-written
	if e.Bytes < 100*1000 || c.parts[f].HighWatermark() < before {
		t.Errorf("pulled %d bytes, high watermark %d, before %d", e.Bytes, c.parts[f].HighWatermark(), before)
	}
	c.same(hw)
	if _, err := reader.Read(nil, 5, 1000); err != nil {
		t.Errorf("a reader from before: %v", err)
	}
	c.awaitGenerations(f, 2)
	c.transfer(f)
	c.same(c.load(-1, 5, 10))
}

// awaitGenerations waits until a replica has the folder of one generation alone.
func (c *trio) awaitGenerations(i int, want uint64) {
	c.t.Helper()
	p := c.parts[i]
	deadline := time.Now().Add(testTimeout)
	for {
		names, err := c.nodes[i].fs.List(p.r.dir)
		if err != nil {
			c.t.Fatal(err)
		}
		if len(names) == 2 && names[0] == fmt.Sprintf("%06d", want) {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("the replica has %v, want generation %d alone", names, want)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// slowly bounds what a node sends to the one that catches up, so that things can happen meanwhile.
func (c *trio) slowly(to int, bytesPerSecond int64) {
	for i := range c.nodes {
		if i != to {
			c.net.SetLink(nodeName(int32(i+1)), nodeName(int32(to+1)), transport.Link{BytesPerSecond: bytesPerSecond})
		}
	}
}

// awaitPull waits until a part has been pulled.
func (c *trio) awaitPull(i int, part int64) CatchUp {
	c.t.Helper()
	deadline := time.Now().Add(testTimeout)
	for {
		if u, ok := c.parts[i].CatchUp(); ok && u.Pulled > u.Total/part && u.Bytes < u.Total {
			return u
		}
		if time.Now().After(deadline) {
			c.t.Fatal("nothing is pulled")
		}
		<-time.After(time.Millisecond)
	}
}

// Who sends goes away in the middle: it is cut off, it dies, or another one leads. The new leader's offer goes on from what is there.
func TestSourceGoesAway(t *testing.T) {
	t.Parallel() // it waits, mostly
	for _, how := range []string{"cut", "death", "deposed"} {
		t.Run(how, func(t *testing.T) {
			c := newTrio(t)
			defer c.close()
			hw := c.load(-1, 200, 10000)
			for _, p := range c.parts {
				waitHW(t, p, hw)
			}
			c.slowly(3, 1<<20)
			i := c.joinNode(vfs.OS, func(s *PartitionSpec) { s.Settings.SegmentBytes = 1 << 20 })
			u := c.awaitPull(i, 4)
			l := c.leader(-1)
			if u.From != int32(l+1) {
				t.Errorf("node %d leads, and node %d sends", l+1, u.From)
			}
			except := l
			switch how {
			case "cut":
				c.net.isolate(int32(l+1), true)
			case "death":
				c.nodes[l].close()
			case "deposed":
				c.transfer((l + 1) % 3)
				except = -1
			}
			c.leader(except)
			if how == "death" {
				c.nodes[l].open()
				c.start(l, false)
			}
			c.slowly(3, 0)
			e := c.nodes[i].firstEvent(EventCatchUpFailed)
			t.Log("failed with", e.Err)
			e = c.nodes[i].firstEvent(EventCatchUpDone)
			if e.Bytes > 200*10000-100000 {
				t.Errorf("the second pull took %d bytes, and a part was there", e.Bytes)
			}
			c.net.isolate(int32(l+1), false)
			c.same(c.load(-1, 5, 10))
			awaitNoOffers(t, c)
		})
	}
}

// awaitNoOffers waits until no node has an offer, a pinned index or a place taken.
func awaitNoOffers(t *testing.T, c *trio) {
	t.Helper()
	deadline := time.Now().Add(testTimeout)
	for {
		left := 0
		for i, n := range c.nodes {
			n.host.catchUps.mu.Lock()
			left += len(n.host.catchUps.mu.offers) + len(n.host.catchUps.in) + len(n.host.catchUps.out)
			n.host.catchUps.mu.Unlock()
			p := c.parts[i]
			p.mu.Lock()
			left += len(p.mu.pins)
			p.mu.Unlock()
		}
		if left == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d things are held", left)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// Connections break again and again, and every break costs no more than what was on its way.
func TestConnectionsBreak(t *testing.T) {
	c := newTrio(t)
	defer c.close()
	hw := c.load(-1, 200, 10000)
	for i := range 3 {
		c.net.SetLink(nodeName(int32(i+1)), nodeName(4), transport.Link{Break: 0.03})
	}
	i := c.joinNode(vfs.OS, func(s *PartitionSpec) { s.Settings.SegmentBytes = 1 << 20 })
	waitHW(t, c.parts[i], hw)
	for i := range 3 {
		c.net.SetLink(nodeName(int32(i+1)), nodeName(4), transport.Link{})
	}
	c.same(c.load(-1, 5, 10))
}

// The machine of who receives goes down again and again, each time a number of file operations later, and loses what was not synced. It goes on from
// what it has, and in the end has all.
func TestReceiverCrashes(t *testing.T) {
	t.Parallel() // it waits, mostly
	c := newTrio(t)
	hw := c.load(-1, 120, 10000)
	segments := func(s *PartitionSpec) { s.Settings.SegmentBytes = 1 << 20 }
	disk := vfs.NewMem()
	clones := make(chan *vfs.Mem, 1)
	left := 0
	var mu sync.Mutex
	crash := func(round int) vfs.FS {
		current := disk
		left = math.MaxInt
		return vfs.Inject(disk, func(vfs.Op, string, int64, int) error {
			mu.Lock()
			defer mu.Unlock()
			if left--; left == 0 {
				clones <- current.CrashClone(vfs.CrashOptions{Rand: rand.New(rand.NewPCG(uint64(round), 9)), KeepUnsynced: float64(round%3) / 2})
			}
			if left <= 0 {
				return vfs.ErrInjected // what it does from here on it does not live to tell of
			}
			return nil
		})
	}
	if err := disk.MkdirAll("/data"); err != nil {
		t.Fatal(err)
	}
	i := c.joinNode(disk, segments)
	waitHW(t, c.parts[i], 1)
	c.nodes[i].close()
	// Now an empty replica again, durably, and from then on crashes.
	disk = vfs.NewMem()
	c.change(func(p *Partition, ctx context.Context) error { return p.Remove(ctx, c.learner(i)) })
	c.nodes, c.parts = c.nodes[:i], c.parts[:i]
	n := &testNode{t: t, fs: disk, dir: "/data", id: int32(i + 1), net: c.net, lives: 10}
	n.open()
	if err := disk.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	spec := testSpec(t, n.id)
	spec.Replica, spec.Join, spec.Learner = replicaID(n.id, 3), true, true
	segments(&spec)
	if err := n.host.PrepareReplica(spec); err != nil {
		t.Fatal(err)
	}
	n.close()
	c.change(func(p *Partition, ctx context.Context) error { return p.AddLearner(ctx, spec.Replica, n.id) })
	crashes := 0
	for round := 0; ; round++ {
		n.fs = crash(round)
		n.open()
		p := n.start(spec, false)
		if s, cause := p.State(); s == StateQuarantined {
			t.Fatalf("round %d: %v", round, cause)
		}
		mu.Lock()
		left = 5 + 4*round
		mu.Unlock()
		caught := make(chan struct{})
		stop := make(chan struct{})
		go func() {
			defer close(caught)
			ch := make(chan struct{}, 1)
			defer p.Notify(ch)()
			for p.HighWatermark() < hw {
				select {
				case <-ch:
				case <-stop:
					return
				}
			}
		}()
		var next *vfs.Mem
		select {
		case next = <-clones:
		case <-caught:
		case <-time.After(testTimeout):
			c.nodes, c.parts = append(c.nodes, n), append(c.parts, p)
			c.dump()
			u, ok := p.CatchUp()
			t.Fatalf("round %d: no crash and no end: %+v %v", round, u, ok)
		}
		close(stop)
		<-caught
		if next == nil {
			mu.Lock()
			left = math.MaxInt
			mu.Unlock()
			c.nodes, c.parts = append(c.nodes, n), append(c.parts, p)
			break
		}
		_ = n.host.Close(testContext(t)) // its disk is gone
		_ = n.peers.node.Close()
		disk = next
		crashes++
	}
	t.Logf("%d crashes", crashes)
	if crashes < 5 {
		t.Errorf("%d crashes only", crashes)
	}
	c.same(c.load(-1, 5, 10))
	c.close()
}

// A replica is removed while it is being brought up to date, and its node deletes it.
func TestRemovedWhilePulling(t *testing.T) {
	t.Parallel() // it waits, mostly
	c := newTrio(t)
	c.load(-1, 100, 10000)
	c.slowly(3, 256<<10)
	i := c.joinNode(vfs.OS, nil)
	c.awaitPull(i, 10)
	c.change(func(p *Partition, ctx context.Context) error { return p.Remove(ctx, c.learner(i)) })
	if err := c.nodes[i].host.RemovePartition(testContext(t), c.parts[i]); err != nil {
		t.Fatal(err)
	}
	if _, err := c.nodes[i].fs.Stat(c.parts[i].r.dir); err == nil {
		t.Error("the folder is still there")
	}
	awaitNoOffers(t, c)
	c.close()
}

// The membership changes while a replica is brought up to date, and the change reaches it.
func TestMembershipChangesWhilePulling(t *testing.T) {
	t.Parallel() // it waits, mostly
	c := newTrio(t)
	defer c.close()
	hw := c.load(-1, 100, 10000)
	c.slowly(3, 1<<20)
	i := c.joinNode(vfs.OS, nil)
	c.awaitPull(i, 10)
	gone := (c.leader(-1) + 1) % 3
	c.change(func(p *Partition, ctx context.Context) error { return p.Remove(ctx, c.parts[gone].spec.Replica) })
	c.slowly(3, 0)
	waitHW(t, c.parts[i], hw)
	m := membership(t, c.parts[i])
	if len(m.voters) != 2 || len(m.learners) != 1 || !m.removed[c.parts[gone].spec.Replica] {
		t.Errorf("the learner says %v", m)
	}
	if r := newestMembers(c.parts[i]); r > 3 {
		t.Errorf("%d voters in its record", r)
	}
}

func newestMembers(p *Partition) int { return len(p.r.record().Membership.Addresses) }

// Close on either side ends a pull at once.
func TestCloseWhilePulling(t *testing.T) {
	t.Parallel() // it waits, mostly
	for _, side := range []string{"source", "receiver"} {
		t.Run(side, func(t *testing.T) {
			c := newTrio(t)
			c.load(-1, 100, 10000)
			c.slowly(3, 64<<10)
			i := c.joinNode(vfs.OS, nil)
			c.awaitPull(i, 50)
			who := i
			if side == "source" {
				who = c.leader(-1)
			}
			start := time.Now()
			c.nodes[who].close()
			if took := time.Since(start); took > testTimeout/2 {
				t.Errorf("Close took %v", took)
			}
			c.nodes[who].open() // so that all can be closed
			c.close()
		})
	}
}

// Under fsync interval a replica is brought up to date as well, durably.
func TestCatchUpUnderInterval(t *testing.T) {
	c := newTrio(t)
	defer c.close()
	hw := c.load(-1, 50, 1000)
	disk := vfs.NewMem()
	if err := errors.Join(disk.MkdirAll("/data"), disk.SyncDir("/")); err != nil {
		t.Fatal(err)
	}
	interval := func(s *PartitionSpec) { s.Settings.Fsync = FsyncInterval }
	i := c.joinNode(disk, interval)
	waitHW(t, c.parts[i], hw)
	clone := disk.CrashClone(vfs.CrashOptions{})
	c.nodes[i].close()
	c.nodes[i].fs = clone
	c.nodes[i].open()
	c.startLearner(i, interval, false)
	if end := c.parts[i].EndOffset(); end < hw {
		t.Errorf("after the power cut the log ends at %d, installed was %d", end, hw)
	}
	c.same(c.load(-1, 5, 10))
}
