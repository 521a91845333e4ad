package replication

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lni/dragonboat/v4/raftio"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/transport"
)

// tape keeps a share of the messages that hosts were sent.
type tape struct {
	mu   sync.Mutex
	rng  *rand.Rand
	seen map[pb.MessageType]int
	kept map[pb.MessageType][][]byte
}

const tapePerKind = 200

func newTape(seed uint64) *tape {
	return &tape{rng: rand.New(rand.NewPCG(seed, 1)), seen: map[pb.MessageType]int{}, kept: map[pb.MessageType][][]byte{}}
}

func (c *tape) record(m *pb.Message) {
	data := pb.MustMarshal(m)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen[m.Type]++
	if len(c.kept[m.Type]) < tapePerKind {
		c.kept[m.Type] = append(c.kept[m.Type], data)
	} else if at := c.rng.IntN(c.seen[m.Type]); at < tapePerKind {
		c.kept[m.Type][at] = data
	}
}

// any returns a message of any of the kinds on the tape, each as likely.
func (c *tape) any(rng *rand.Rand) (m pb.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var kinds []pb.MessageType
	for k := range c.kept {
		kinds = append(kinds, k)
	}
	slices.Sort(kinds)
	list := c.kept[kinds[rng.IntN(len(kinds))]]
	pb.MustUnmarshal(&m, list[rng.IntN(len(list))])
	return m
}

const (
	victimShard    = 2 // what the messages are about
	bystanderShard = 3 // another partition on the same hosts, which has to go on in any case
)

// hostileRig is a trio of hosts with two partitions, and a fourth node of the cluster without a replica.
type hostileRig struct {
	*trio
	bystanders []*Partition
	stranger   *peers
	tape       *tape
	rng        *rand.Rand
	acked      [2]map[int64]string // of the two partitions
}

func newHostileRig(t *testing.T, seed uint64) *hostileRig {
	t.Logf("seed %d", seed)
	h := &hostileRig{
		trio: &trio{t: t, net: newTestNet(t, seed), nodes: make([]*testNode, 3), parts: make([]*Partition, 3)}, bystanders: make([]*Partition, 3),
		tape: newTape(seed), rng: rand.New(rand.NewPCG(seed, 2)), acked: [2]map[int64]string{{}, {}},
	}
	for i := range h.nodes {
		h.nodes[i] = &testNode{t: t, fs: vfs.NewMem(), dir: "/data", id: int32(i + 1), net: h.net, logger: slog.New(slog.DiscardHandler)}
	}
	h.open(true)
	h.stranger = h.net.join(4, 1)
	return h
}

func (h *hostileRig) open(create bool) {
	h.t.Helper()
	for i, n := range h.nodes {
		n.open()
		deliver := n.host.net.deliver
		n.host.net.deliver = func(b pb.MessageBatch) { // nothing is delivered before there is a replica
			for j := range b.Requests {
				if b.SourceAddress != "" && b.Requests[j].ShardID == victimShard {
					h.tape.record(&b.Requests[j])
				}
			}
			deliver(b)
		}
		h.start(i, create)
		spec := h.parts[i].spec
		spec.Topic, spec.TopicID, spec.Shard = "bystander", [16]byte{8}, bystanderShard
		h.bystanders[i] = n.start(spec, create)
	}
}

// closeAll closes the hosts, and fails when a worker of Raft was parked. A host whose replica was latched may not say that its files are in order.
func (h *hostileRig) closeAll(latched bool) {
	h.t.Helper()
	for i, n := range h.nodes {
		if p := n.host.parked.Load(); p != 0 {
			h.t.Errorf("node %d: %d workers of Raft are parked: %v", i+1, p, h.events(i, EventRaftParked))
		}
		if err := n.host.Close(testContext(h.t)); err != nil && (!latched || errors.Is(err, context.DeadlineExceeded)) {
			h.t.Errorf("node %d: close: %v", i+1, err)
		}
		if err := n.peers.node.Close(); err != nil {
			h.t.Errorf("node %d: close: %v", i+1, err)
		}
	}
}

func (h *hostileRig) events(i int, kind EventKind) (errs []error) {
	for {
		select {
		case e := <-h.nodes[i].events:
			if e.Kind == kind {
				errs = append(errs, e.Err)
			}
		default:
			return errs
		}
	}
}

// write appends to one of the partitions, through whoever leads it, and notes what is acknowledged.
func (h *hostileRig) write(which int, value string) {
	h.t.Helper()
	c := &trio{t: h.t, net: h.net, nodes: h.nodes, parts: [][]*Partition{h.parts, h.bystanders}[which]}
	_, at := c.produce(-1, value)
	h.acked[which][at] = value
}

// check waits until all three replicas of a partition have the same records, everything acknowledged among them.
func (h *hostileRig) check(which int) {
	h.t.Helper()
	parts := [][]*Partition{h.parts, h.bystanders}[which]
	hw := int64(0)
	for at := range h.acked[which] {
		hw = max(hw, at+1)
	}
	for _, p := range parts {
		waitHW(h.t, p, hw)
	}
	first := values(h.t, parts[0], 0)[:hw]
	for i, p := range parts {
		if p.r.latched.Load() {
			_, cause := p.State()
			h.t.Errorf("node %d: the replica of shard %d takes no more: %v", i+1, p.spec.Shard, cause)
		}
		if got := values(h.t, p, 0)[:hw]; !slices.Equal(got, first) {
			h.t.Errorf("node %d: shard %d differs: %d records and %d", i+1, p.spec.Shard, len(got), len(first))
		}
	}
	for at, v := range h.acked[which] {
		if first[at] != v {
			h.t.Errorf("shard %d has %q at %d, acknowledged was %q", parts[0].spec.Shard, first[at], at, v)
		}
	}
}

// busy makes the partition go through what it goes through in its life, so that messages of every kind are on the tape.
func (h *hostileRig) busy() {
	h.t.Helper()
	ctx := testContext(h.t)
	for round := range 4 {
		for i := range 6 {
			h.write(0, fmt.Sprintf("r%d-%d", round, i))
		}
		l := h.leader(-1)
		f := (l + 1) % 3
		learner := replicaID(9, uint32(round+1)) // of a node that is never there
		_ = h.parts[l].AddLearner(ctx, learner, 9)
		_, _, _, _ = h.parts[f].Membership(ctx)
		_ = h.parts[l].Remove(ctx, learner)
		if round == 2 {
			h.net.isolate(int32(l+1), true)
			h.write2(l, "alone")
			h.net.isolate(int32(l+1), false)
			continue
		}
		h.transfer(l, f, round%2 == 1)
	}
	// These take a snapshot, a full queue or a crash to be sent.
	for _, m := range []pb.Message{{Type: pb.SnapshotReceived}, {Type: pb.RateLimit, Term: 2, Hint: 100}, {Type: pb.NoOP, Term: 2}, {Type: pb.TimeoutNow, Term: 2},
		{Type: pb.LeaderTransfer, Hint: replicaID(2, 1)}, {Type: pb.ReadIndex, Hint: 5, HintHigh: 7}, {Type: pb.ReadIndexResp, Term: 2, LogIndex: 3, Hint: 5},
		{Type: pb.RequestVote, Term: 3, LogIndex: 4, LogTerm: 2}, {Type: pb.RequestPreVote, Term: 3, LogIndex: 4, LogTerm: 2},
		{Type: pb.RequestPreVoteResp, Term: 3, Reject: true}, {Type: pb.RequestVoteResp, Term: 3}} {
		m.ShardID, m.From, m.To = victimShard, replicaID(1, 1), replicaID(2, 1)
		h.tape.record(&m)
	}
}

func (h *hostileRig) write2(except int, value string) {
	_, at := h.produce(except, value)
	h.acked[0][at] = value
}

// transfer asks the leader, or another node, to move the leadership.
func (h *hostileRig) transfer(from, to int, byFollower bool) {
	at := from
	if byFollower {
		at = (from + 2) % 3
	}
	g := &h.nodes[at].host.guard
	g.mu.RLock()
	defer g.mu.RUnlock()
	_ = g.nh.RequestLeaderTransfer(victimShard, replicaID(int32(to+1), 1))
}

// tell hands a message to the host that it is for, as if the given node had sent it.
func (h *hostileRig) tell(from, to int32, list ...pb.Message) {
	if to < 1 || to > 3 {
		to = 1 + h.rng.Int32N(3)
	}
	b := pb.MessageBatch{Requests: list, DeploymentId: deploymentID, BinVer: raftio.TransportBinVersion, SourceAddress: nodeName(from)}
	h.nodes[to-1].peers.onBatch(transport.Peer{ID: from}, pb.MustMarshal(&b))
}

// strangerSays sends messages over the network from the node that has no replica.
func (h *hostileRig) strangerSays(ctx context.Context, list []pb.Message) {
	h.t.Helper()
	for to := range int32(3) {
		b, err := h.stranger.node.OpenBatches(ctx, to+1, transport.FullWaits)
		if err != nil {
			h.t.Fatal(err)
		}
		for _, m := range list {
			batch := pb.MessageBatch{Requests: []pb.Message{m}, DeploymentId: deploymentID, BinVer: raftio.TransportBinVersion, SourceAddress: nodeName(nodeOf(m.From))}
			if err := b.Send(pb.MustMarshal(&batch)); err != nil {
				h.t.Fatal(err)
			}
		}
		if err := b.Close(); err != nil {
			h.t.Fatal(err)
		}
	}
}

// mutation changes fields of a message at random.
type mutation struct{ rng *rand.Rand }

func (u mutation) number(v uint64) uint64 {
	switch u.rng.IntN(10) {
	case 0:
		return 0
	case 1:
		return math.MaxUint64
	case 2:
		return math.MaxUint64 - u.rng.Uint64N(4)
	case 3:
		return 1 << u.rng.IntN(64)
	case 4:
		return u.rng.Uint64()
	case 5:
		return math.MaxInt32 + u.rng.Uint64N(3) - 1
	case 6:
		return v + u.rng.Uint64N(100)
	default:
		return v + u.rng.Uint64N(5) - 2
	}
}

func (u mutation) replica(v uint64) uint64 {
	if u.rng.IntN(3) == 0 {
		return u.number(v)
	}
	return replicaID(1+u.rng.Int32N(4), 1+uint32(u.rng.IntN(2)))
}

func (u mutation) bytes(b []byte) []byte {
	b = slices.Clone(b)
	switch at := u.rng.IntN(len(b) + 1); u.rng.IntN(5) {
	case 0:
		return b[:at]
	case 1:
		return append(b, byte(at))
	case 2:
		return nil
	default:
		if at < len(b) {
			b[at] ^= 1 << u.rng.IntN(8)
		}
		return b
	}
}

func (u mutation) entry(e *pb.Entry) {
	switch u.rng.IntN(8) {
	case 0:
		e.Index = u.number(e.Index)
	case 1:
		e.Term = u.number(e.Term)
	case 2:
		e.Type = pb.EntryType(u.rng.IntN(6))
	case 3:
		e.Key = u.number(e.Key)
	case 4:
		e.ClientID = u.number(e.ClientID)
	case 5:
		e.SeriesID = u.number(e.SeriesID)
	default:
		e.Cmd = u.bytes(e.Cmd)
	}
}

func (u mutation) message(m *pb.Message) {
	if n := len(m.Entries); n > 0 && u.rng.IntN(2) == 0 {
		switch at := u.rng.IntN(n); u.rng.IntN(4) {
		case 0:
			m.Entries = slices.Delete(m.Entries, at, at+1)
		case 1:
			m.Entries = slices.Insert(m.Entries, at, m.Entries[u.rng.IntN(n)])
		default:
			u.entry(&m.Entries[at])
		}
		return
	}
	switch u.rng.IntN(12) {
	case 0:
		m.Type = pb.MessageType(u.rng.IntN(32))
	case 1:
		m.To = u.replica(m.To)
	case 2:
		m.From = u.replica(m.From)
	case 3:
		if m.ShardID = u.number(m.ShardID); m.ShardID == bystanderShard {
			m.ShardID = victimShard
		}
	case 4:
		m.Term = u.number(m.Term)
	case 5:
		m.LogTerm = u.number(m.LogTerm)
	case 6:
		m.LogIndex = u.number(m.LogIndex)
	case 7:
		m.Commit = u.number(m.Commit)
	case 8:
		m.Reject = !m.Reject
	case 9:
		m.Hint = u.number(m.Hint)
	case 10:
		m.HintHigh = u.number(m.HintHigh)
	case 11:
		m.Snapshot.Index, m.Snapshot.Term = u.number(m.Commit), u.number(m.Term)
	}
}

// bounds holds what a process may grow by.
type bounds struct {
	goroutines int
	heap       uint64
}

func measure() bounds {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return bounds{runtime.NumGoroutine(), s.HeapAlloc}
}

// bounded waits until the process has not grown much.
func (b bounds) bounded(t testing.TB) {
	t.Helper()
	now := measure()
	for deadline := time.Now().Add(testTimeout); now.goroutines > b.goroutines+100 || now.heap > b.heap+64<<20; now = measure() {
		if time.Now().After(deadline) {
			t.Errorf("%d goroutines and %d bytes became %d and %d", b.goroutines, b.heap, now.goroutines, now.heap)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
