package replication

import "time"

// EventKind names what happened.
type EventKind string

// The kinds of events.
const (
	EventLeader          EventKind = "leader"           // this node became the leader of a partition and appends to it
	EventLeaderLost      EventKind = "leader-lost"      // it leads no longer
	EventISRShrink       EventKind = "isr-shrink"       // replicas of a partition led here are in sync no longer
	EventISRGrow         EventKind = "isr-grow"         // replicas are in sync again, or new
	EventUnderReplicated EventKind = "under-replicated" // a partition led here has fewer replicas in sync than voters
	EventReplicated      EventKind = "fully-replicated" // and has all of them again
	EventTailCut         EventKind = "tail-cut"         // recovery cut a torn tail that was never acknowledged as durable
	EventUnsyncedLost    EventKind = "unsynced-at-risk" // the machine went down under fsync interval: acknowledged records above the offset may be gone
	EventQuarantined     EventKind = "quarantined"      // damage was found; the replica does not run
	EventDamaged         EventKind = "damaged"          // damage was found; the replica goes on with what is good
	EventReplicaFailed   EventKind = "replica-failed"   // a write or sync failed; the replica takes no more
	EventReplicaRestart  EventKind = "replica-restart"  // a replica stopped by a full disk runs again
	EventDiskFull        EventKind = "disk-full"        // free space fell below the reserve
	EventDiskFree        EventKind = "disk-free"        // and rose above it again
	EventJournalOff      EventKind = "journal-off"      // the journal failed; every log syncs its own files now
	EventRaftParked      EventKind = "raft-parked"      // dragonboat met a broken invariant; one of its workers is parked
	EventRetention       EventKind = "retention"        // segments were deleted
	EventMetadata        EventKind = "metadata-broken"  // the cluster's metadata cannot be read on this node any more
	EventCatchUp         EventKind = "catch-up"         // a replica is being brought up to date with the log of another node
	EventCatchUpDone     EventKind = "catch-up-done"    // and is so now
	EventCatchUpFailed   EventKind = "catch-up-failed"  // it was cut off; what came is kept, and it will be tried again
	EventRecovered       EventKind = "recovered"        // a partition without a majority goes on from one replica's log, which ends at the offset
	EventOrphan          EventKind = "orphan"           // a replica's folder belongs to no topic; it was left alone
)

// Event is something that an operator may want to know. Topic is empty when the event concerns the node.
type Event struct {
	Kind      EventKind
	Time      time.Time
	Topic     string
	Partition int32
	Offset    int64         // where it applies: the log end or the first offset concerned; else -1 or 0
	Bytes     int64         // pulled, of a catch-up
	Duration  time.Duration // of a catch-up
	Err       error
	Detail    string
}
