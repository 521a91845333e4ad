package replication

import (
	"slices"
	"time"
)

// RouteInfo is what is known here of a partition at one moment.
type RouteInfo struct {
	// Leader is the node that leads, 0 when none is known, in Epoch.
	Leader int32
	Epoch  int32
	// Offline says that no leader has been known for a while.
	Offline bool
	// State is as Route.State says, and Cause why.
	State PartitionState
	Cause error
	// Replicas are the partition's, by the newest record that is known here.
	Replicas []ReplicaInfo
	// Start, HighWatermark, End and Size are the leader's, as last heard, or those of this node's replica when nothing was heard.
	Start, HighWatermark, End int64
	Size                      int64
	Unsynced                  time.Duration
}

// ReplicaInfo is one replica of a partition.
type ReplicaInfo struct {
	Node    int32
	Replica uint64
	Role    Role
	Leader  bool
	// InSync is what the leader says; false for all while that is not known.
	InSync bool
}

// Info tells what is known of the partition, without asking anybody.
func (r *Route) Info() RouteInfo {
	i := RouteInfo{}
	i.State, i.Cause = r.State()
	r.mu.Lock()
	leader, since, local, replicas := r.mu.leader, r.mu.since, r.mu.local, r.mu.replicas
	at, known := r.mu.at, r.mu.known
	r.mu.Unlock()
	if here := r.here.Load(); here != nil {
		local, known = here, false
		leader = wireLeader{}
		if epoch := here.Epoch(); epoch > 0 {
			leader = wireLeader{r.router.self, epoch, here.spec.Replica}
		}
	}
	i.Leader, i.Epoch = leader.node, leader.epoch
	i.Offline = !r.router.alone && leader.node == 0 && time.Since(since) > offlineAfter
	switch {
	case known && (local == nil || local.HighWatermark() < at.hw):
		i.Start, i.HighWatermark, i.End, i.Size, i.Unsynced = at.start, at.hw, at.end, at.size, at.unsynced
	case local != nil:
		i.Start, i.HighWatermark, i.End = local.StartOffset(), local.HighWatermark(), local.EndOffset()
		i.Size, i.Unsynced = local.Size(), local.Unsynced()
	}
	var isr []uint64
	switch e, ok := r.router.table.lookup(r.shard.Load()); {
	case r.router.alone && leader.node > 0:
		isr = []uint64{leader.replica}
	case ok && e.epoch == leader.epoch:
		isr = e.isr
	}
	for _, a := range replicas {
		i.Replicas = append(i.Replicas, ReplicaInfo{
			Node: a.Node, Replica: a.Replica, Role: a.Role, Leader: a.Replica == leader.replica && leader.node > 0, InSync: slices.Contains(isr, a.Replica),
		})
	}
	return i
}
