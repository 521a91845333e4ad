package replication

import (
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	_ "github.com/lni/dragonboat/v4" // the variables' home
)

// dragonboat sizes its per-replica queues for large servers: about 1.1 MB of heap for each replica, which the garbage collector paces by
// even where the pages are never touched. The sizes are package variables, set from a file in the working directory at import
// and offered nowhere in its configuration, so they are reached by name. A test fails loudly when a new version renames them.

//go:linkname incomingProposalsMaxLen github.com/lni/dragonboat/v4.incomingProposalsMaxLen
var incomingProposalsMaxLen uint64

//go:linkname incomingReadIndexMaxLen github.com/lni/dragonboat/v4.incomingReadIndexMaxLen
var incomingReadIndexMaxLen uint64

//go:linkname receiveQueueLen github.com/lni/dragonboat/v4.receiveQueueLen
var receiveQueueLen uint64

//go:linkname pendingProposalShards github.com/lni/dragonboat/v4.pendingProposalShards
var pendingProposalShards uint64

//go:linkname nodeReloadInterval github.com/lni/dragonboat/v4.nodeReloadInterval
var nodeReloadInterval time.Duration

//go:linkname entrySliceSize github.com/lni/dragonboat/v4/internal/raft.entrySliceSize
var entrySliceSize uint64

//go:linkname minEntrySliceSize github.com/lni/dragonboat/v4/internal/raft.minEntrySliceSize
var minEntrySliceSize uint64

const (
	// proposalQueueMax bounds the proposals that wait for one replica's step worker. MaxInFlightBatches stays below it, so that
	// dragonboat never refuses what the appender lets through.
	proposalQueueMax = 64
	readQueueMax     = 16
	receiveQueueMax  = 32
	// entrySliceMax is how many entries Raft's tail in memory has room for. It keeps hold of the payloads of that many, applied or not.
	entrySliceMax  = 64
	entrySliceFree = 16
	// reloadInterval is how often every worker walks all its replicas even when nothing happens.
	reloadInterval = time.Second
)

var shrinkOnce sync.Once

// shrinkQueues sets dragonboat's queue sizes, once for the process, before the first NodeHost exists.
func shrinkQueues() {
	shrinkOnce.Do(func() {
		incomingProposalsMaxLen = proposalQueueMax
		incomingReadIndexMaxLen = readQueueMax
		receiveQueueLen = receiveQueueMax
		entrySliceSize, minEntrySliceSize = entrySliceMax, entrySliceFree
		pendingProposalShards = 1 // one appender proposes to a replica, so sharding its table buys nothing
		nodeReloadInterval = reloadInterval
	})
}
