package billet

import (
	"context"
	"syscall"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/replication"
	"github.com/billetlog/billet/segment"
)

// What the root needs from below. Package replication gives it, through the
// adapters in catalog.go; tests have their own in memory.

// topicState describes a topic at one moment.
type topicState struct {
	ID         string
	Name       string
	Internal   bool
	Partitions int
	Config     map[string]string // what was set, without defaults
	MaxMessage int               // bytes of a batch
	Times      timestampRule
}

// catalog is the set of topics. All methods honour ctx and are safe for
// concurrent use.
type catalog interface {
	CreateTopic(ctx context.Context, name string, partitions, replicas int, config map[string]string) error
	DeleteTopic(ctx context.Context, name string) error
	AlterTopic(ctx context.Context, name string, set map[string]string, unset []string) error
	AddPartitions(ctx context.Context, name string, total int) error
	Topics() []topicState // sorted by name
	Topic(name string) (topicState, bool)
	// Partition returns the way to a partition, wherever it is led. That of a
	// deleted topic is closed.
	Partition(topic string, n int32) (partitionLog, error)
	NewProducerID(ctx context.Context) (id int64, epoch int16, err error)
	// Version changes after every change of the topics. It is asked for with
	// every record, so it is cheap.
	Version() uint64
	// Notify makes a non-blocking send on ch after every change of Version.
	Notify(ch chan<- struct{}) (cancel func())
}

// partitionLog is one partition, led by this node or another one, safe for
// concurrent use. Only methods that take a context wait for the network.
type partitionLog interface {
	// Append waits for nobody's disk and does not keep b. It calls done once,
	// from another goroutine or before it returns; done must not block.
	Append(b batch.Batch, o replication.AppendOptions, done func(replication.AppendResult))
	// Writable waits until some node leads the partition and returns nil, or
	// says why none ever will.
	Writable(ctx context.Context) error
	// Current tells whether the offsets are exact at any time, as they are where
	// this node leads. Elsewhere they are what was heard last, if Known; Notify
	// keeps them fresh, and Refresh asks for them.
	Current() bool
	Known() bool
	Refresh(ctx context.Context) error
	StartOffset() int64
	HighWatermark() int64
	EndOffset() int64
	Size() int64
	// Unsynced is the age of the oldest acknowledged record that is not
	// durable, or 0.
	Unsynced() time.Duration
	State() (replication.PartitionState, error)
	// Notify makes a non-blocking send on ch whenever the high watermark or the
	// state changes.
	Notify(ch chan<- struct{}) (cancel func())
	NewCursor() cursor
	// Info describes the partition, without asking anybody.
	Info() replication.RouteInfo
	// ReadLocal returns the same partition, to be read from this node's replica
	// where there is one.
	ReadLocal() partitionLog
	// OffsetForTime returns the first committed record whose timestamp, in
	// milliseconds, is ts or later; ok is false when there is none.
	OffsetForTime(ctx context.Context, ts int64) (offset, timestamp int64, ok bool, err error)
}

// cursor reads one partition for one goroutine at a time.
type cursor interface {
	// Read appends to dst whole committed batches from the one that holds
	// offset on: as many as fit in maxBytes, and at least one. It appends
	// nothing at the high watermark, nor when the batches have to come from
	// another node and have not: then the partition's Notify tells when they
	// have, and Wait waits for that.
	Read(dst []byte, offset int64, maxBytes int) ([]byte, error)
	Wait(ctx context.Context) error
	// Suspect tells the replica that gave what the last Read returned, on
	// whichever node that is, that the batch at the offset is not what was
	// written, so that its file is looked at. It never blocks.
	Suspect(offset int64)
	Close()
}

// takesRecords tells whether a partition in the state takes records, be it on
// another node.
func takesRecords(s replication.PartitionState) bool {
	return s == replication.StateLeader || s == replication.StateFollower
}

type appendResult = replication.AppendResult

// seamErrors maps errors from below to public ones. The first that fits counts.
var seamErrors = []struct{ below, public error }{
	{vfs.ErrLocked, ErrLocked},
	{replication.ErrNotEnoughReplicasAfterAppend, errNotEnoughAfterAppend},
	{replication.ErrAmbiguous, ErrAmbiguous},
	{replication.ErrNotEnoughReplicas, ErrNotEnoughReplicas},
	{replication.ErrQuarantined, ErrQuarantined},
	{replication.ErrDiskFull, ErrDiskFull},
	{syscall.ENOSPC, ErrDiskFull},
	{syscall.EDQUOT, ErrDiskFull},
	{replication.ErrFailed, ErrPartitionFailed},
	{replication.ErrNotLeader, ErrNotLeader},
	{replication.ErrBusy, ErrBusy},
	{replication.ErrOutOfOrderSequence, ErrOutOfOrderSequence},
	{replication.ErrProducerFenced, ErrProducerFenced},
	{replication.ErrInvalidTimestamp, ErrInvalidRecord},
	{replication.ErrInvalidBatch, ErrInvalidRecord},
	{replication.ErrTooLarge, ErrRecordTooLarge},
	{replication.ErrUnknownTopic, ErrUnknownTopic},
	{replication.ErrTopicExists, ErrTopicExists},
	{replication.ErrInvalidPartitions, ErrInvalidTopic},
	{replication.ErrInvalidTopic, ErrInvalidTopic},
	{replication.ErrInvalidConfig, ErrInvalidConfig},
	{replication.ErrForeignDir, ErrForeignDir},
	{replication.ErrNotEnoughNodes, ErrNotEnoughNodes},
	{replication.ErrNodeExists, ErrNodeExists},
	{replication.ErrUnknownNode, ErrUnknownNode},
	{replication.ErrMajority, ErrMajority},
	{replication.ErrClosed, ErrClosed},
	{segment.ErrForeign, ErrForeignDir},
	{segment.ErrCorrupt, ErrCorrupt},
	{segment.ErrClosed, ErrClosed},
	{batch.ErrCorrupt, ErrCorrupt},
	{batch.ErrTruncated, ErrCorrupt},
	{batch.ErrUnsupportedMagic, ErrCorrupt},
	{batch.ErrUnsupportedCodec, ErrCorrupt},
	{batch.ErrTooLarge, ErrRecordTooLarge},
}

// replicationAcks is how the layer below spells what to wait for.
func replicationAcks(a Acks) replication.Acks {
	switch a {
	case AcksNone:
		return replication.AcksNone
	case AcksLeader:
		return replication.AcksLeader
	}
	return replication.AcksAll
}

// partitionState translates a state.
func partitionState(i *replication.RouteInfo) PartitionState {
	switch i.State {
	case replication.StateLeader:
		return StateLeader
	case replication.StateFollower:
		return StateFollower
	case replication.StateFailed:
		return StateFailed
	case replication.StateQuarantined:
		return StateQuarantined
	case replication.StateClosed:
		return StateClosed
	}
	if i.Offline {
		return StateOffline
	}
	return StateStarting
}
