package replication

import (
	"testing"
	"time"
)

// What dragonboat's variables held before any host was opened. If a version renames one, the name here stands for a variable of ours
// that nobody reads, and holds zero.
var found = struct {
	proposals, reads, receive, shards, slice, free uint64
	reload                                         time.Duration
}{incomingProposalsMaxLen, incomingReadIndexMaxLen, receiveQueueLen, pendingProposalShards, entrySliceSize, minEntrySliceSize, nodeReloadInterval}

func TestQueueSizesAreDragonboats(t *testing.T) {
	if found.proposals != 2048 || found.reads != 4096 || found.receive != 1024 || found.shards != 16 || found.slice != 512 || found.free != 96 || found.reload != 200*time.Millisecond {
		t.Fatalf("dragonboat's queue sizes are not where link.go looks for them: %+v", found)
	}
}
