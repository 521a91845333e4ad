package replication

import (
	"maps"
	"slices"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// removedMax is how many ids of removed replicas a group remembers. Raft keeps them all, so that none is added again, and every record of the
// membership has them. Ids only grow, and a change of the membership is proposed by nobody but the leader, which has looked at the membership just
// then: whoever is not a member and has an id below the oldest one that is remembered was removed, or comes too late to be added.
const removedMax = 128

// forgetRemoved leaves the newest of the ids that were removed. The membership may be shared, so its map stays as it is.
func forgetRemoved(m *pb.Membership) {
	if len(m.Removed) > removedMax {
		m.Removed = newestRemoved(m.Removed)
	}
}

func newestRemoved(removed map[uint64]bool) map[uint64]bool {
	ids := slices.Sorted(maps.Keys(removed))
	kept := make(map[uint64]bool, removedMax)
	for _, id := range ids[max(len(ids)-removedMax, 0):] {
		kept[id] = true
	}
	return kept
}

// wasRemoved tells whether the id of a replica that is no member was removed, as far as is remembered.
func wasRemoved(removed map[uint64]bool, id uint64) bool {
	if removed[id] {
		return true
	}
	if len(removed) < removedMax {
		return false
	}
	for other := range removed {
		if other < id {
			return false
		}
	}
	return true
}
