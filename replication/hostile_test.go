package replication

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// What a peer that says wrong things may cause, and what not.
//
// Who is authenticated as a member may lie within Raft: claim a vote, a later term, the leadership of a later term, or an acknowledgement. No check of a message can
// tell that from the truth, so it may move leaderships, and rob the partition that it lies about of records. It must not harm the process,
// a worker of Raft, or any other partition, and nothing of it may keep a host from opening again (TestLyingPeer).
//
// What was true once, however often, late and out of order it is said, and whatever is said by one who is not who it claims to be or says what
// contradicts itself or what is known for certain, must change nothing at all (TestHostilePeer).

// hostileRounds is how many messages are told; more where time does not matter.
func hostileRounds(few int) int {
	if os.Getenv("BILLET_SLOW") != "" {
		return few * 20
	}
	return few
}

// refutable spoils a message in a way that a receiver can tell, and returns which node sends it.
func (h *hostileRig) refutable(m *pb.Message) (from int32) {
	from = nodeOf(m.From)
	switch h.rng.IntN(12) {
	case 0: // somebody else's words
		return 1 + from%3
	case 1:
		return 4
	case 2:
		m.Term = maxEpoch + 1 + h.rng.Uint64N(1<<62)
	case 3:
		m.Term += termJumpMax * 2
	case 4:
		m.Type = []pb.MessageType{pb.LocalTick, pb.Election, pb.LeaderHeartbeat, pb.ConfigChangeEvent, pb.Ping, pb.Pong, pb.SnapshotStatus, pb.Unreachable,
			pb.CheckQuorum, pb.BatchedReadIndex, pb.InstallSnapshot, pb.Quiesce, pb.LogQuery, pb.MessageType(99)}[h.rng.IntN(14)]
	case 5:
		m.Snapshot.Index, m.Snapshot.Term = 7, 1
	case 6:
		*m = pb.Message{Type: pb.LeaderTransfer, From: m.From, To: m.To, ShardID: m.ShardID}
	case 7:
		*m = pb.Message{Type: pb.ReadIndex, From: m.From, To: m.To, ShardID: m.ShardID, Hint: 5, Term: h.rng.Uint64N(20) + 1}
	case 8: // behind the end of the log
		*m = pb.Message{Type: pb.Replicate, From: m.From, To: m.To, ShardID: m.ShardID, Term: max(m.Term, 1), LogIndex: 1 << 30, Commit: 1 << 31}
	case 9: // an acknowledgement of what is not there
		*m = pb.Message{Type: pb.ReplicateResp, From: m.From, To: m.To, ShardID: m.ShardID, Term: max(m.Term, 1), LogIndex: 1 << (20 + h.rng.IntN(44))}
	case 10: // an old leader that knows of more
		*m = pb.Message{Type: pb.Heartbeat, From: m.From, To: m.To, ShardID: m.ShardID, Term: 1, Commit: 1 << 40}
	case 11: // one that is not the leader
		h.pretend(m)
	}
	return from
}

// pretend makes m a leader's message from a node that another one knows not to lead.
func (h *hostileRig) pretend(m *pb.Message) {
	to := 1 + h.rng.Int32N(3)
	leader, term, ok := h.nodes[to-1].host.guard.leader(victimShard)
	if !ok || nodeOf(leader) == nodeOf(m.From) || to == nodeOf(m.From) {
		m.ShardID = 0
		return
	}
	kind := []pb.MessageType{pb.Heartbeat, pb.TimeoutNow, pb.ReadIndexResp, pb.Replicate}[h.rng.IntN(4)]
	*m = pb.Message{Type: kind, From: m.From, To: replicaID(to, 1), ShardID: victimShard, Term: term, LogIndex: 5, LogTerm: 2, Commit: 1 << 40, Hint: 5}
}

func TestHostilePeer(t *testing.T) {
	h := newHostileRig(t, 20)
	h.busy()
	before := measure()
	n := hostileRounds(1500)
	for i := range n {
		m := h.tape.any(h.rng)
		from := nodeOf(m.From)
		if i%2 == 0 {
			from = h.refutable(&m)
		}
		for range 1 + h.rng.IntN(2) {
			h.tell(from, nodeOf(m.To), m)
		}
		if i%(n/15) == 0 {
			h.write(0, fmt.Sprint("under fire ", i))
			h.write(1, fmt.Sprint("beside ", i))
		}
	}
	var said []pb.Message
	for range 200 {
		said = append(said, h.tape.any(h.rng))
	}
	h.strangerSays(testContext(t), said)
	h.write(0, "after")
	h.write(1, "after")
	before.bounded(t)
	for round := range 2 {
		h.check(0)
		h.check(1)
		h.closeAll(false)
		if round == 0 {
			h.open(false)
			h.write(0, "again")
		}
	}
	_ = h.stranger.node.Close()
}

func TestLyingPeer(t *testing.T) {
	for seed := range uint64(hostileRounds(1)) {
		lie(t, seed+1)
	}
}

func lie(t *testing.T, seed uint64) {
	h := newHostileRig(t, seed)
	h.busy()
	before := measure()
	u := mutation{rand.New(rand.NewPCG(seed, 3))}
	const n = 1500
	for i := range n {
		m := h.tape.any(h.rng)
		for range 1 + u.rng.IntN(3) {
			u.message(&m)
		}
		h.tell(nodeOf(m.From), nodeOf(m.To), m)
		if i%(n/10) == 0 {
			h.write(1, fmt.Sprint("beside ", i))
			done := func(AppendResult) {}
			for _, p := range h.parts {
				p.Append(textBatch(t, "victim"), AppendOptions{Acks: AcksAll}, done)
			}
		}
	}
	h.write(1, "after")
	before.bounded(t)
	for round := range 2 {
		h.check(1)
		h.closeAll(true)
		if round == 0 {
			h.open(false)
			h.write(1, "again")
		}
	}
	_ = h.stranger.node.Close()
	for i, p := range h.parts {
		if s, cause := p.State(); s == StateQuarantined {
			t.Logf("seed %d: node %d: %v", seed, i+1, cause)
		}
	}
}

// What contradicts what a replica knows is dropped, and does not latch it.
func TestAdmits(t *testing.T) {
	c := newTrio(t)
	c.produce(-1, "x")
	l := c.leader(-1)
	f, other := (l+1)%3, (l+2)%3
	waitHW(t, c.parts[f], 1)
	_, term, _ := c.nodes[l].host.guard.leader(2)
	for name, refused := range map[string]struct {
		at int
		m  pb.Message
	}{
		"leads not":             {f, pb.Message{Type: pb.Heartbeat, From: replicaID(int32(other+1), 1), Term: term, Commit: 1000}},
		"a leader is told":      {l, pb.Message{Type: pb.Replicate, From: replicaID(int32(other+1), 1), Term: term, LogIndex: 1, LogTerm: 1}},
		"nobody's order":        {f, pb.Message{Type: pb.TimeoutNow, From: replicaID(int32(other+1), 1), Term: term}},
		"too far ahead":         {f, pb.Message{Type: pb.NoOP, From: replicaID(int32(l+1), 1), Term: term + termJumpMax + 1}},
		"has more than there":   {l, pb.Message{Type: pb.ReplicateResp, From: replicaID(int32(f+1), 1), Term: term, LogIndex: 5000}},
		"answers the future":    {l, pb.Message{Type: pb.HeartbeatResp, From: replicaID(int32(f+1), 1), Term: term + 2}},
		"answers what may come": {f, pb.Message{Type: pb.ReplicateResp, From: replicaID(int32(l+1), 1), Term: term + 9, LogIndex: 1}},
	} {
		m := refused.m
		m.ShardID, m.To = 2, c.parts[refused.at].spec.Replica
		if r, err := c.nodes[refused.at].host.db.admits(&m); r != nil || !errors.Is(err, errPeerMessage) {
			t.Errorf("%s: %v %v", name, r, err)
		}
	}
	old := pb.Message{Type: pb.Heartbeat, From: replicaID(int32(other+1), 1), To: c.parts[f].spec.Replica, ShardID: 2, Term: term - 1, Commit: 1000}
	if r, err := c.nodes[f].host.db.admits(&old); r == nil || err != nil {
		t.Errorf("an old leader: %v %v", r, err) // dragonboat tells it of the term
	}
	c.produce(-1, "y")
	for i, p := range c.parts {
		waitHW(t, p, 2)
		if p.r.latched.Load() {
			t.Errorf("node %d is latched", i+1)
		}
	}
	c.close()
}
