package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/batch"
)

// TopicID is a topic's identity: a topic that is deleted and made again has another.
type TopicID = [16]byte

// Broker is the node behind a server. Its methods are safe for concurrent use, and only
// those with a context wait. Errors that are meant for clients are *kerr.Error; others
// become UNKNOWN_SERVER_ERROR and are logged.
type Broker interface {
	Groups

	// Self is this node's id.
	Self() int32
	// ClusterID is the cluster's.
	ClusterID() string
	// Nodes lists the nodes that have a listener of that name and are not known to be
	// down, by id.
	Nodes(listener string) []Node
	// Controller is the node that decides on topics, 0 when it is not known. Every
	// node takes requests for it.
	Controller() int32

	// Topics lists all topics by name; Topic and TopicByID find one. The snapshots say
	// who leads, too. TopicName is the cheap part of TopicByID.
	Topics() []Topic
	Topic(name string) (Topic, bool)
	TopicByID(id TopicID) (Topic, bool)
	TopicName(id TopicID) (name string, ok bool)
	// Partition returns this node's replica of a partition, whether it leads or
	// follows. Errors: UNKNOWN_TOPIC_OR_PARTITION; NOT_LEADER_OR_FOLLOWER when it has
	// none; KAFKA_STORAGE_ERROR when it has failed.
	Partition(topic string, number int32) (Partition, error)
	// Leader tells who leads a partition as far as it is known; node is -1 when it is not.
	Leader(topic string, number int32) (node, epoch int32)
	// DeleteRecords moves the start of a partition that is led here to before, or to the
	// high watermark if that is -1, and returns it. Errors: OFFSET_OUT_OF_RANGE.
	DeleteRecords(ctx context.Context, topic string, number int32, before int64) (start int64, err error)
	// NewProducerID returns an id that no producer of the cluster ever had.
	NewProducerID(ctx context.Context) (id int64, epoch int16, err error)

	Admin
}

// Groups has the coordinators of groups.
type Groups interface {
	// FindCoordinator tells which node coordinates a group. It makes what is needed for
	// groups at the first call. Errors: COORDINATOR_NOT_AVAILABLE.
	FindCoordinator(ctx context.Context, group string) (node int32, err error)
	// Coordinate answers a request that concerns groups: JoinGroup, SyncGroup,
	// Heartbeat, LeaveGroup, OffsetCommit, OffsetFetch, OffsetDelete, ListGroups,
	// DescribeGroups, DeleteGroups, ConsumerGroupHeartbeat, ConsumerGroupDescribe. It
	// may take minutes. For groups that are coordinated elsewhere the answer says so.
	// The request is the coordinator's until it is answered, even when ctx ends before.
	Coordinate(ctx context.Context, from Client, request kmsg.Request) kmsg.Response
}

// Node is a node as clients of one listener reach it.
type Node struct {
	ID   int32
	Host string
	Port int32
	Rack string
}

// Topic is a topic at one moment.
type Topic struct {
	Name       string
	ID         TopicID
	Internal   bool
	Partitions []PartitionState // by number, without gaps
}

// PartitionState is a partition as the cluster knows it.
type PartitionState struct {
	// Leader is -1 when none is known.
	Leader, Epoch int32
	// Replicas are the nodes, the preferred leader first; InSync of them those that
	// have all, and Offline those that are down.
	Replicas, InSync, Offline []int32
}

// ErrBusy says that a partition has too much in flight: nothing was appended, and what
// Notify tells is a time to try again.
var ErrBusy = errors.New("kafka: the partition has too much in flight")

// Partition is this node's replica of a partition. Methods are safe for concurrent use.
type Partition interface {
	// Internal says that clients do not write to it.
	Internal() bool
	// Offsets tells where it stands.
	Offsets() Offsets
	// Check refuses a batch that a client sent and that may not be appended: its bytes,
	// its size and its times. It is the whole validation. Errors: CORRUPT_MESSAGE,
	// INVALID_RECORD, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE.
	Check(b batch.Batch) error
	// Append gives the batch its offset and stores it. It waits for nobody's disk and
	// does not keep b. done is called once, from another goroutine or before Append
	// returns, and must not block. acks is Kafka's: -1, 0 or 1. That there is no room,
	// ErrBusy, done is told before Append returns.
	Append(b batch.Batch, acks int16, done func(Appended))
	// Size is about how many bytes it has.
	Size() int64
	// PreferredReplica is the node with an in-sync replica that a client in the rack had
	// better read from, -1 when that is this one or none. It is asked where it leads.
	PreferredReplica(rack string) int32
	// NewCursor makes a reader of committed batches, which costs nothing before its
	// first Read.
	NewCursor() Cursor
	// Notify makes a send on ch, without blocking, whenever the high watermark or the
	// state changes.
	Notify(ch chan<- struct{}) (cancel func())
	// OffsetForTime finds the first committed record whose timestamp is ts or later.
	// ok is false when there is none.
	OffsetForTime(ts int64) (offset, timestamp int64, ok bool, err error)
	// MaxTimestamp finds the first of the committed records with the latest timestamp.
	// ok is false when there is none.
	MaxTimestamp() (offset, timestamp int64, ok bool, err error)
	// EpochEnd is the largest epoch that has records and is not above the given one, and
	// the offset at which it ends. ok is false when there is none.
	EpochEnd(epoch int32) (largest int32, end int64, ok bool)
	// EpochAt is the epoch in which the record with the offset was appended, -1 when it
	// is not known.
	EpochAt(offset int64) int32
}

// Offsets is where a replica stands.
type Offsets struct {
	Start, HighWatermark, LastStable, End int64
	// Epoch is the leader's as far as it is known, or -1; Leading whether it leads.
	Epoch   int32
	Leading bool
}

// Appended is what became of a batch. Timestamp is -1 unless the topic's records get the
// time of their append.
type Appended struct {
	Offset, Timestamp int64
	Err               error
}

// Cursor reads one partition, for one goroutine at a time.
type Cursor interface {
	// Read appends to dst whole committed batches from the one that holds offset on: as
	// many as fit maxBytes, and at least one. It appends nothing at the high watermark.
	// Errors: OFFSET_OUT_OF_RANGE, CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
	Read(dst []byte, offset int64, maxBytes int) ([]byte, error)
	Close()
}

// Client is who sends a request.
type Client struct {
	// ID is what it calls itself, Host its address.
	ID, Host string
}
