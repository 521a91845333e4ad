package replication

import (
	pb "github.com/lni/dragonboat/v4/raftpb"

	"github.com/billetlog/billet/segment"
)

// How a replica came into its group. It stands in the slot from birth, because dragonboat has to be told the same at every start: a replica that
// was added without a vote finds the entry that says so in its log for a long time, and one that was not started as such takes it for a broken
// invariant, also after it was promoted. Frozen.
const (
	roleInitial uint8 = 0 // a member since the group was made
	roleJoined  uint8 = 1 // added with a vote
	roleLearner uint8 = 2 // added without a vote
)

// role is that of files that are made for the spec.
func (s *PartitionSpec) role() uint8 {
	switch {
	case s.Learner:
		return roleLearner
	case s.Join:
		return roleJoined
	}
	return roleInitial
}

// birth says how an empty replica begins.
func (p *Partition) birth() (segment.Start, segment.Slot) {
	if role := p.spec.role(); role != roleInitial {
		// No entry ever has index 1, so the leader has nothing that would follow an empty log but its whole log.
		bootstrap := pb.NewBootstrapInfo(true, pb.OnDiskStateMachine, nil)
		return segment.Start{FirstIndex: 1}, segment.Slot{Role: role, Bootstrap: pb.MustMarshal(&bootstrap)}
	}
	members := map[uint64]string{p.spec.Replica: p.host.name}
	if p.spec.members != nil {
		members = p.spec.members
	}
	record, bootstrap := genesisRecord(p.spec.Shard, members), genesisBootstrap(members)
	return segment.Start{FirstIndex: genesisIndex + 1, PrevTerm: genesisTerm}, segment.Slot{
		Term: genesisTerm, Commit: genesisIndex, Mark: genesisIndex, Snapshots: [][]byte{pb.MustMarshal(&record)}, Bootstrap: pb.MustMarshal(&bootstrap),
	}
}

// role is how the replica came into its group.
func (r *replica) role() uint8 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.slot.Role
}

// votesAlone says whether the replica is, as far as its files tell, the only voter of its group: then nobody is disturbed when it campaigns at once.
func (r *replica) votesAlone() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.recordLocked()
	_, self := s.Membership.Addresses[r.key.Replica]
	return self && len(s.Membership.Addresses) == 1 && r.mu.lastConfig <= s.Index
}
