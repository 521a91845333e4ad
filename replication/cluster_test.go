package replication

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"
	sm "github.com/lni/dragonboat/v4/statemachine"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/segment"
)

// trio is one partition on three hosts over a network in memory.
type trio struct {
	t     *testing.T
	net   *testNet
	nodes []*testNode
	parts []*Partition
}

func newTrio(t *testing.T) *trio { return newTrioWith(t, func(*testNode) {}) }

func newTrioWith(t *testing.T, tune func(*testNode)) *trio {
	c := &trio{t: t, net: newTestNet(t, 1), nodes: make([]*testNode, 3), parts: make([]*Partition, 3)}
	for i := range c.nodes {
		c.nodes[i] = &testNode{t: t, fs: vfs.OS, dir: filepath.Join(t.TempDir(), fmt.Sprint(i)), id: int32(i + 1), net: c.net}
		tune(c.nodes[i])
		c.nodes[i].open()
	}
	for i := range c.nodes {
		c.start(i, true)
	}
	return c
}

func (c *trio) start(i int, create bool) {
	c.t.Helper()
	spec := testSpec(c.t, int32(i+1))
	spec.members = map[uint64]string{}
	for n := range 3 {
		spec.members[replicaID(int32(n+1), 1)] = nodeName(int32(n + 1))
	}
	c.parts[i] = c.nodes[i].start(spec, create)
}

func (c *trio) close() {
	for _, n := range c.nodes {
		n.close()
	}
}

// leader waits until one of the nodes, not the excluded one, leads, and returns it.
func (c *trio) leader(except int) int {
	c.t.Helper()
	ch := make(chan struct{}, 1)
	for i, p := range c.parts {
		if i != except {
			defer p.Notify(ch)()
		}
	}
	deadline := time.After(testTimeout)
	for {
		for i, p := range c.parts {
			if s, _ := p.State(); i != except && s == StateLeader {
				return i
			}
		}
		select {
		case <-ch:
		case <-deadline:
			c.dump()
			c.t.Fatal("no leader")
		}
	}
}

// dump logs what every node thinks.
func (c *trio) dump() {
	c.t.Helper()
	for i, p := range c.parts {
		l, term, ok := p.host.guard.leader(2)
		s, cause := p.State()
		p.append.Lock()
		leading, epoch, next := p.append.leading, p.append.epoch, p.append.next
		p.append.Unlock()
		p.mu.Lock()
		applied, waiting := p.mu.applied, p.mu.waiters.len()
		p.mu.Unlock()
		log := p.r.currentLog()
		c.t.Logf("node %d: state %v %v, raft says leader %x term %d %v; appender %v epoch %d next %d, %d in flight; applied %d, hw %d, log [%d, %d] end %d, latched %v, parked %d",
			i+1, s, cause, l, term, ok, leading, epoch, next, waiting, applied, p.HighWatermark(), log.FirstIndex(), log.LastIndex(), log.EndOffset(), p.r.latched.Load(), p.host.parked.Load())
	}
}

// produce appends through whoever leads until it is acknowledged, and returns where.
func (c *trio) produce(except int, value string) (leader int, offset int64) {
	c.t.Helper()
	last, once := map[string]int{}, onceBatch(c.t)
	for deadline := time.Now().Add(testTimeout); time.Now().Before(deadline); {
		l := c.leader(except)
		r := appendBatch(c.t, c.parts[l], once(value), AcksAll)
		if r.Err == nil {
			return l, r.Offset
		}
		if !errors.Is(r.Err, ErrNotLeader) && !errors.Is(r.Err, ErrBusy) && !errors.Is(r.Err, ErrAmbiguous) {
			c.t.Fatal(r.Err)
		}
		last[fmt.Sprint(l, ": ", r.Err)]++
	}
	c.dump()
	c.t.Fatalf("nothing was acknowledged; answers were %v", last)
	return 0, 0
}

func TestThreeReplicas(t *testing.T) {
	c := newTrio(t)
	var want []string
	for i := range 20 {
		v := fmt.Sprint("v", i)
		if _, at := c.produce(-1, v); at != int64(i) {
			t.Fatalf("offset %d, want %d", at, i)
		}
		want = append(want, v)
	}
	for i, p := range c.parts {
		waitHW(t, p, 20)
		if got := values(t, p, 0); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("node %d has %v", i+1, got)
		}
	}
	c.close()
}

// A leader that is cut off goes on proposing; what it stored and nobody else has is replaced when it is back.
func TestConflictTruncation(t *testing.T) {
	c := newTrio(t)
	_, _ = c.produce(-1, "before")
	old := c.leader(-1)
	c.net.isolate(int32(old+1), true)
	answers := make(chan AppendResult, 5)
	for i := range 5 {
		c.parts[old].Append(textBatch(t, fmt.Sprint("lost", i)), AppendOptions{Acks: AcksAll}, func(r AppendResult) { answers <- r })
	}
	var want = []string{"before"}
	for i := range 10 {
		v := fmt.Sprint("kept", i)
		c.produce(old, v)
		want = append(want, v)
	}
	c.net.isolate(int32(old+1), false)
	for range 5 {
		if r := <-answers; r.Err == nil {
			t.Errorf("a batch that only the cut-off leader had was acknowledged at %d", r.Offset)
		}
	}
	waitHW(t, c.parts[old], int64(len(want)))
	for i, p := range c.parts {
		waitHW(t, p, int64(len(want)))
		if got := values(t, p, 0); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("node %d has %v, want %v", i+1, got, want)
		}
	}
	// And once more from disk.
	c.nodes[old].close()
	c.nodes[old].open()
	c.start(old, false)
	waitHW(t, c.parts[old], int64(len(want)))
	if got := values(t, c.parts[old], 0); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after reopen node %d has %v, want %v", old+1, got, want)
	}
	c.close()
}

// Leadership moves while appends are in flight: what is acknowledged is there once and in order, on every node the same.
func TestLeadershipMovesUnderLoad(t *testing.T) {
	c := newTrio(t)
	acked := map[int64]string{}
	for round := range 6 {
		l := c.leader(-1)
		answers := make(chan AppendResult, 200)
		sent := []string{}
		for i := range 200 {
			if i == 100 {
				target := (l + 1 + round) % 3
				if target == l {
					target = (l + 1) % 3
				}
				c.nodes[l].host.guard.mu.RLock()
				err := c.nodes[l].host.guard.nh.RequestLeaderTransfer(2, replicaID(int32(target+1), 1))
				c.nodes[l].host.guard.mu.RUnlock()
				if err != nil {
					t.Fatal(err)
				}
			}
			v := fmt.Sprintf("r%d-%d", round, i)
			done := make(chan AppendResult, 1)
			c.parts[l].Append(textBatch(t, v), AppendOptions{Acks: AcksAll}, func(r AppendResult) { done <- r; answers <- r })
			sent = append(sent, v)
			if i%20 == 19 {
				<-done
			}
			_ = sent
		}
		for i := range 200 {
			select {
			case <-answers:
			case <-time.After(testTimeout):
				t.Fatalf("round %d: %d answers are missing", round, 200-i)
			}
		}
		_, at := c.produce(-1, fmt.Sprint("end", round))
		acked[at] = fmt.Sprint("end", round)
	}
	hw := int64(0)
	for at := range acked {
		hw = max(hw, at+1)
	}
	var first []string
	for i, p := range c.parts {
		waitHW(t, p, hw)
		got := values(t, p, 0)[:hw]
		if first == nil {
			first = got
		}
		if strings.Join(got, ",") != strings.Join(first, ",") {
			t.Errorf("node %d differs", i+1)
		}
		for at, v := range acked {
			if got[at] != v {
				t.Errorf("node %d has %q at %d, acknowledged was %q", i+1, got[at], at, v)
			}
		}
	}
	c.close()
}

// A node that grew from one voter to two, and loses every commit that was kept lazily, must find its membership again.
func TestMembershipChangeSurvivesLostCommit(t *testing.T) {
	n := newTestNode(t)
	p := n.start(testSpec(t, 1), true)
	writable(t, p)
	appendBatch(t, p, textBatch(t, "a"), AcksAll)
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	n.host.guard.mu.RLock()
	err := n.host.guard.nh.SyncRequestAddNonVoting(ctx, 2, replicaID(2, 1), nodeName(2), 0)
	n.host.guard.mu.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	appendBatch(t, p, textBatch(t, "b"), AcksAll)
	// Reopen from what the files hold now, without a clean close: the slot's commit covers the change.
	p.r.mu.Lock()
	slot, last := p.r.mu.slot, p.r.mu.lastConfig
	p.r.mu.Unlock()
	if slot.Commit < last || last == 0 {
		t.Errorf("the slot's commit is %d, the membership change at %d", slot.Commit, last)
	}
	n.close()
	n.open()
	p = n.start(testSpec(t, 1), false)
	writable(t, p)
	ctx2, cancel2 := context.WithTimeout(context.Background(), testTimeout)
	defer cancel2()
	n.host.guard.mu.RLock()
	m, err := n.host.guard.nh.SyncGetShardMembership(ctx2, 2)
	n.host.guard.mu.RUnlock()
	if err != nil || len(m.NonVotings) != 1 || len(m.Nodes) != 1 {
		t.Errorf("membership after reopen: %+v, %v", m, err)
	}
	if got := values(t, p, 0); fmt.Sprint(got) != "[a b]" {
		t.Errorf("read %v", got)
	}
	n.close()
}

// The store driven as dragonboat drives it when a snapshot arrives: a complete log lies staged, one update installs it and carries
// entries behind it.
func TestInstallSnapshot(t *testing.T) {
	n := newTestNode(t)
	p := n.start(testSpec(t, 1), true)
	writable(t, p)
	appendBatch(t, p, textBatch(t, "mine"), AcksAll)
	ctx := testContext(t)
	if err := n.host.stopRaft(ctx, p); err != nil { // the test is dragonboat from here on
		t.Fatal(err)
	}
	r := p.r
	const at, term = 50, 9
	staged, err := segment.Create(n.host.segmentOptions(r, 2, r.mu.slot.Identity), segment.Start{FirstIndex: 48, PrevTerm: term - 1, Offset: 100})
	if err != nil {
		t.Fatal(err)
	}
	b := textBatch(t, "theirs", "too")
	b.SetBaseOffset(100)
	b.SetLeaderEpoch(term)
	if _, err := staged.Append([]segment.Entry{{Index: 48, Term: term, Kind: segment.KindNoOp}, {Index: 49, Term: term, Kind: segment.KindData, Data: b}, {Index: 50, Term: term, Kind: segment.KindVoid}}); err != nil {
		t.Fatal(err)
	}
	if err := staged.SaveCheckpoint(segment.Checkpoint{Index: at, Term: term, Offset: 102, Payload: newFold().encode(0)}, true); err != nil {
		t.Fatal(err)
	}
	if err := staged.Close(true); err != nil {
		t.Fatal(err)
	}
	r.stage(at, term, 2)
	next := textBatch(t, "behind")
	next.SetBaseOffset(102)
	next.SetLeaderEpoch(term)
	u := pb.Update{
		ShardID: 2, ReplicaID: r.key.Replica, State: pb.State{Term: term, Vote: 0, Commit: at},
		Snapshot:      pb.Snapshot{ShardID: 2, Index: at, Term: term, OnDiskIndex: at, Membership: genesisRecord(2, map[uint64]string{r.key.Replica: "node-1"}).Membership, Type: pb.OnDiskStateMachine},
		EntriesToSave: []pb.Entry{{Index: 51, Term: term, Type: pb.EncodedEntry, Key: 3, ClientID: 3, Cmd: append([]byte{0}, next...)}},
	}
	if err := n.host.db.SaveRaftState([]pb.Update{u}, 1); err != nil {
		t.Fatal(err)
	}
	if r.latched.Load() {
		t.Fatal(r.mu.cause)
	}
	// What was on its way to be applied is covered by the snapshot.
	late := []sm.Entry{{Index: 3, Cmd: textBatch(t, "late")}, {Index: 49, Cmd: b}}
	if _, err := p.machine.Load().Update(late); err != nil || r.latched.Load() || p.mu.applied != at {
		t.Fatalf("late entries: %v, latched %v, applied %d", err, r.mu.cause, p.mu.applied)
	}
	if err := p.machine.Load().RecoverFromSnapshot(nil, nil); err != nil {
		t.Fatal(err)
	}
	if p.HighWatermark() != 102 || p.EndOffset() != 103 || p.StartOffset() != 100 {
		t.Errorf("start %d, high watermark %d, end %d", p.StartOffset(), p.HighWatermark(), p.EndOffset())
	}
	ents, _, err := n.host.db.IterateEntries(nil, 0, 2, r.key.Replica, 50, 52, 1<<20)
	if err != nil || len(ents) != 2 || ents[0].Type != pb.EncodedEntry || string(ents[1].Cmd[1:]) != string(next) || ents[0].Key == 0 {
		t.Errorf("entries read back: %+v, %v", ents, err)
	}
	// Without a staged log the replica is latched, and keeps what it is given in memory.
	u.Snapshot.Index, u.EntriesToSave[0].Index = 90, 91
	if err := n.host.db.SaveRaftState([]pb.Update{u}, 1); err != nil || !r.latched.Load() || !errors.Is(r.mu.cause, errNotStaged) {
		t.Errorf("error %v, latched %v, cause %v", err, r.latched.Load(), r.mu.cause)
	}
	if ents, _, _ = n.host.db.IterateEntries(nil, 0, 2, r.key.Replica, 91, 92, 1<<20); len(ents) != 1 {
		t.Errorf("the overlay gives %d entries", len(ents))
	}
	n.host.mu.Lock()
	delete(n.host.mu.partitions, 2)
	n.host.mu.Unlock()
	n.host.db.journal.Forget(r.key)
	if err := r.closeFiles(false); err != nil {
		t.Error(err)
	}
	n.close()
}
