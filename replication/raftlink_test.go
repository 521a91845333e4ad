package replication

import (
	"testing"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

// Nothing that keeps a group together, and nothing of the metadata, waits behind entries; entries and their answers stay in order.
func TestUrgentMessages(t *testing.T) {
	const other = firstTopicShard
	for _, c := range []struct {
		kind  pb.MessageType
		shard uint64
		want  bool
	}{
		{pb.Replicate, other, false},
		{pb.ReplicateResp, other, false},
		{pb.Replicate, metadataShard, true},
		{pb.ReplicateResp, metadataShard, true},
		{pb.Heartbeat, other, true},
		{pb.HeartbeatResp, other, true},
		{pb.RequestVote, other, true},
		{pb.RequestPreVoteResp, other, true},
		{pb.TimeoutNow, other, true},
		{pb.ReadIndex, other, true},
	} {
		if got := urgent(&pb.Message{Type: c.kind, ShardID: c.shard}); got != c.want {
			t.Errorf("%s of shard %d: urgent is %v", c.kind, c.shard, got)
		}
	}
}
