package replication

import "github.com/lni/dragonboat/v4/raftio"

// MembershipChanged implements dragonboat's listener.
func (e memberEvents) MembershipChanged(info raftio.NodeInfo) { e.changed(info.ShardID) }

// quietSystemEvents is a listener for dragonboat that hears nothing.
type quietSystemEvents struct{}

func (quietSystemEvents) NodeHostShuttingDown()                       {}
func (quietSystemEvents) NodeUnloaded(raftio.NodeInfo)                {}
func (quietSystemEvents) NodeDeleted(raftio.NodeInfo)                 {}
func (quietSystemEvents) NodeReady(raftio.NodeInfo)                   {}
func (quietSystemEvents) MembershipChanged(raftio.NodeInfo)           {}
func (quietSystemEvents) ConnectionEstablished(raftio.ConnectionInfo) {}
func (quietSystemEvents) ConnectionFailed(raftio.ConnectionInfo)      {}
func (quietSystemEvents) SendSnapshotStarted(raftio.SnapshotInfo)     {}
func (quietSystemEvents) SendSnapshotCompleted(raftio.SnapshotInfo)   {}
func (quietSystemEvents) SendSnapshotAborted(raftio.SnapshotInfo)     {}
func (quietSystemEvents) SnapshotReceived(raftio.SnapshotInfo)        {}
func (quietSystemEvents) SnapshotRecovered(raftio.SnapshotInfo)       {}
func (quietSystemEvents) SnapshotCreated(raftio.SnapshotInfo)         {}
func (quietSystemEvents) SnapshotCompacted(raftio.SnapshotInfo)       {}
func (quietSystemEvents) LogCompacted(raftio.EntryInfo)               {}
func (quietSystemEvents) LogDBCompacted(raftio.EntryInfo)             {}
