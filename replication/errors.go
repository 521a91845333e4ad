package replication

import (
	"errors"
	"fmt"
)

// Errors to branch on. Those marked retriable may be gone when the same call is made again.
var (
	// ErrNotLeader means that this node does not lead the partition, or not yet. Nothing was appended. Retriable.
	ErrNotLeader = errors.New("replication: not the leader of the partition")
	// ErrBusy means that the partition's in-flight budget is used up. Nothing was appended. Retriable, after a completion.
	ErrBusy = errors.New("replication: too much in flight")
	// ErrAmbiguous means that the batch was proposed and its fate is unknown: it may be there or not. Retriable; only an
	// idempotent producer can retry it without risking a duplicate.
	ErrAmbiguous = errors.New("replication: outcome unknown")
	// ErrNotEnoughReplicas means that fewer replicas are in sync than min.insync.replicas demands for acks=all. Nothing was appended. Retriable.
	ErrNotEnoughReplicas = errors.New("replication: not enough replicas in sync")
	// ErrNotEnoughReplicasAfterAppend means that the batch was appended and committed, and that fewer replicas than min.insync.replicas, which is set above
	// the majority, were seen to have it in time. It is an ErrAmbiguous: who retries it without idempotence writes it twice.
	ErrNotEnoughReplicasAfterAppend = fmt.Errorf("%w: appended, but on fewer replicas than min.insync.replicas", ErrAmbiguous)
	// ErrOutOfOrderSequence means that a producer's batch does not follow its last one. Nothing was appended.
	ErrOutOfOrderSequence = errors.New("replication: producer sequence out of order")
	// ErrProducerFenced means that a newer epoch of the producer exists. Nothing was appended.
	ErrProducerFenced = errors.New("replication: producer fenced by a newer epoch")
	// ErrInvalidBatch means that the batch breaks a rule of the format or of the topic. Nothing was appended.
	ErrInvalidBatch = errors.New("replication: invalid record batch")
	// ErrInvalidTimestamp means that a record's timestamp is further from the clock than the topic allows. Nothing was appended.
	ErrInvalidTimestamp = errors.New("replication: timestamp outside the topic's bounds")
	// ErrTooLarge means that the batch is larger than max.message.bytes. Nothing was appended.
	ErrTooLarge = errors.New("replication: record batch too large")
	// ErrDiskFull means that free space fell below the reserve, or that the disk is full. Nothing was appended. Retriable: it recovers by itself.
	ErrDiskFull = errors.New("replication: disk full")
	// ErrFailed means that the disk under this replica failed a write or a sync; the replica takes no more. Reads go on.
	ErrFailed = errors.New("replication: replica failed")
	// ErrQuarantined means that damage was found in this replica's files; they are kept as they are.
	ErrQuarantined = errors.New("replication: replica quarantined")
	// ErrClosed means that the host or the partition is closed.
	ErrClosed = errors.New("replication: closed")
	// ErrUnknownTopic means that there is no topic or partition of that name or number.
	ErrUnknownTopic = errors.New("replication: unknown topic or partition")
	// ErrTopicExists means that there is a topic of that name, or one that differs only in '.' and '_'.
	ErrTopicExists = errors.New("replication: topic exists")
	// ErrInvalidTopic means that a topic's name cannot be, or that the topic is the library's own and not for users to change.
	ErrInvalidTopic = errors.New("replication: invalid topic")
	// ErrInvalidAssignment means that a partition cannot be on the nodes that were named.
	ErrInvalidAssignment = errors.New("replication: invalid replica assignment")
	// ErrInvalidPartitions means a number of partitions that cannot be.
	ErrInvalidPartitions = errors.New("replication: invalid number of partitions")
	// ErrInvalidConfig means a topic setting that is unknown or has a bad value.
	ErrInvalidConfig = errors.New("replication: invalid topic setting")
	// ErrForeignDir means that a directory belongs to another node or cluster.
	ErrForeignDir = errors.New("replication: directory of another node or cluster")
	// ErrNotEnoughNodes means that fewer nodes are alive and active than replicas are asked for.
	ErrNotEnoughNodes = errors.New("replication: not enough nodes")
	// ErrNodeExists means that a node's id is in use by another one.
	ErrNodeExists = errors.New("replication: node id in use")
	// ErrUnknownNode means that the cluster has no node of that id, or no more.
	ErrUnknownNode = errors.New("replication: unknown node")
	// ErrOffsetOutOfRange means that an offset is above what is committed, or is none.
	ErrOffsetOutOfRange = errors.New("replication: offset out of range")
	// ErrNoReassignment means that there is no reassignment of a partition to be cancelled.
	ErrNoReassignment = errors.New("replication: no reassignment in progress")
	// ErrElectionNotNeeded means that a partition is led by its preferred replica already.
	ErrElectionNotNeeded = errors.New("replication: the preferred replica leads")
	// ErrPreferredLeader means that a partition's preferred replica cannot lead now: it is down, behind, or on a node that drains. Retriable.
	ErrPreferredLeader = errors.New("replication: the preferred replica cannot lead")
	// ErrUnreachable means that another node cannot be reached, or does not serve what is asked. Unless the error is an ErrAmbiguous too, nothing was done.
	// Retriable.
	ErrUnreachable = errors.New("replication: node unreachable")
	// ErrMajority means that a partition is not recovered since the majority of its voters is there, or may be.
	ErrMajority = errors.New("replication: the partition has its majority")
	// ErrMembership means that a group does not take a membership change: it breaks a rule, or the replica is not what the change presumes.
	ErrMembership = errors.New("replication: membership change refused")
)
