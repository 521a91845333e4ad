package replication

import (
	"fmt"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// What a peer may say to a replica in the state that it is in. A message that contradicts what is known here is dropped.

const (
	// termJumpMax is how many terms a replica can be behind. Terms come to an end, and a single message could take all of them.
	termJumpMax = 1 << 24
	// unstoredMax bounds the entries that a leader has sent and not stored yet.
	unstoredMax = 4 * proposalQueueMax
)

// admits returns the replica that a message may reach, nil when it is latched or not here. The error says what the message contradicts.
func (d *logDB) admits(m *pb.Message) (*replica, error) {
	r := d.replica(m.ShardID, m.To)
	if r == nil || r.latched.Load() {
		return nil, nil
	}
	known := r.term.Load()
	if known > genesisTerm && m.Term > known+termJumpMax {
		return nil, fmt.Errorf("%w: %s of term %d, known is %d", errPeerMessage, m.Type, m.Term, known)
	}
	switch m.Type {
	case pb.Replicate, pb.Heartbeat, pb.TimeoutNow, pb.ReadIndexResp:
		if leader, term, ok := d.host.guard.leader(m.ShardID); ok && term == m.Term && leader != m.From {
			return nil, fmt.Errorf("%w: %s of replica %x, and %x leads term %d", errPeerMessage, m.Type, m.From, leader, term)
		}
		if m.Type == pb.Heartbeat && m.Term >= known && r.lacks(m.Commit) {
			return nil, nil
		}
	case pb.ReplicateResp, pb.HeartbeatResp:
		// Nobody answers what was not sent. A leader that needs no other's vote begins its term and sends in one step, and stores it after.
		if last := r.storedTo.Load(); m.Term > known+1 || !m.Reject && m.LogIndex > last+unstoredMax {
			return nil, fmt.Errorf("%w: %s of replica %x, which has %d in term %d, and the log here ends at %d in term %d",
				errPeerMessage, m.Type, m.From, m.LogIndex, m.Term, last, known)
		}
	}
	return r, nil
}

// lacks says whether the log ends before what a leader says is committed. A leader tells no follower a commit above what that follower has acknowledged: a
// higher one means that entries were lost here, and dragonboat would panic on it. The replica is latched: it may not vote.
func (r *replica) lacks(commit uint64) bool {
	last := r.currentLog().LastIndex()
	if commit <= last {
		return false
	}
	r.latch(fmt.Errorf("%w: the leader says that %d is committed and the log ends at %d", errLostEntries, commit, last))
	return true
}
