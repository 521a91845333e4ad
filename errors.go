package billet

import (
	"context"
	"errors"
	"fmt"
)

// Errors to branch on with errors.Is. Every error that a method returns wraps
// one of them, a context's error, or the error of a file system, and says what
// happened to which topic and partition. Retriable tells for any of them whether
// the same call may succeed later without anything else being done.
var (
	// ErrClosed means that the Log, Producer, Consumer or partition is closed.
	// Not retriable: open it again.
	ErrClosed = errors.New("closed")
	// ErrLocked means that another open Log, in this or another process, has
	// the directory. The message names its holder. Not retriable by itself:
	// close the other one first.
	ErrLocked = errors.New("directory is in use")
	// ErrForeignDir means that the directory belongs to another node or holds
	// something else. Not retriable: give the right Dir and NodeID.
	ErrForeignDir = errors.New("directory belongs to another node")
	// ErrNodeExists means that another node that is up has the same NodeID. Not
	// retriable: give each node its own.
	ErrNodeExists = errors.New("node id in use")
	// ErrMajority means that a partition was not recovered, since the majority
	// of its voters can be reached. Not retriable: it recovers by itself.
	ErrMajority = errors.New("partition has its majority")
	// ErrUnknownNode means that the cluster has no node of that id, or no more.
	// Not retriable.
	ErrUnknownNode = errors.New("unknown node")
	// ErrNotEnoughNodes means that fewer nodes are up and active than replicas
	// are asked for. Not retriable by itself: add nodes or ask for fewer.
	ErrNotEnoughNodes = errors.New("not enough nodes")
	// ErrInvalidConfig means that a field of a config struct or a topic setting
	// is unknown or out of bounds. Not retriable: the message says what is
	// allowed.
	ErrInvalidConfig = errors.New("invalid configuration")

	// ErrInvalidTopic means that a topic's name or number of partitions cannot
	// be. Not retriable.
	ErrInvalidTopic = errors.New("invalid topic")
	// ErrTopicExists means that there is a topic of this name, or one whose
	// name differs only in '.' and '_'. Not retriable.
	ErrTopicExists = errors.New("topic exists")
	// ErrUnknownTopic means that there is no such topic or partition, or that
	// it was deleted. Not retriable: create it.
	ErrUnknownTopic = errors.New("unknown topic or partition")

	// ErrInvalidRecord means that a record breaks a rule, such as a timestamp
	// too far from the clock. It was not written. Not retriable as it is.
	ErrInvalidRecord = errors.New("invalid record")
	// ErrRecordTooLarge means that a record, or records that must go together,
	// take more than the topic's max.message.bytes before compression. Nothing was written. Not
	// retriable: make it smaller or raise the setting.
	ErrRecordTooLarge = errors.New("record too large")
	// ErrBufferFull means that a Producer with FailFast has BufferBytes of
	// records waiting. The record was not taken. Retriable.
	ErrBufferFull = errors.New("producer buffer is full")
	// ErrTimeout means that a record was not acknowledged within
	// DeliveryTimeout. The error also wraps the last cause, and ErrAmbiguous
	// when the record may have been written. Not retriable by itself: retry
	// after the cause is gone.
	ErrTimeout = errors.New("delivery timed out")
	// ErrAmbiguous means that a record was handed to the log and its fate is
	// not known: it may be there or not. An idempotent Producer retries by
	// itself without making duplicates; a retry by the user can make one.
	// Retriable in that sense.
	ErrAmbiguous = errors.New("outcome is unknown")
	// ErrNotLeader means that this node does not lead the partition, or does
	// not yet. Nothing was written. Retriable.
	ErrNotLeader = errors.New("not the leader of the partition")
	// ErrBusy means that a partition's in-flight budget is used up. Nothing was
	// written. Retriable.
	ErrBusy = errors.New("too much in flight")
	// ErrNotEnoughReplicas means that fewer replicas are in sync than the topic's
	// min.insync.replicas demands. Nothing was written, unless the error also wraps
	// ErrAmbiguous: then the record is there, and too few replicas were seen to have
	// it in time. Retriable; a retry by the user in the second case makes a
	// duplicate, one by an idempotent Producer does not.
	ErrNotEnoughReplicas = errors.New("not enough replicas in sync")
	// ErrDiskFull means that the disk is full or its free space fell below
	// DiskReserve. Nothing was written. Retriable: it recovers by itself when
	// space returns; reads go on.
	ErrDiskFull = errors.New("disk full")
	// ErrOutOfOrderSequence means that a record of an idempotent Producer does
	// not follow what the partition has of that producer: something between
	// was lost. It was not written. The Producer goes on under a new identity.
	// Not retriable without deciding what to do about the loss.
	ErrOutOfOrderSequence = errors.New("producer sequence out of order")
	// ErrProducerFenced means that a newer producer took over this one's
	// identity. The record was not written. Not retriable.
	ErrProducerFenced = errors.New("producer fenced by a newer one")

	// ErrPartitionFailed means that the disk failed a write or a sync of this
	// partition. It takes no more records in this process; reads go on. Not
	// retriable: mend the disk, then open the Log anew.
	ErrPartitionFailed = errors.New("partition failed")
	// ErrQuarantined means that a partition's files are damaged. They are kept
	// as they are and not served; other partitions work. Not retriable: restore
	// the files, or delete the topic.
	ErrQuarantined = errors.New("partition is quarantined")
	// ErrCorrupt means that bytes read from the log fail their checksum. They
	// are never returned. Not retriable.
	ErrCorrupt = errors.New("corrupt data")
	// ErrOffsetOutOfRange means that a position is below the partition's start,
	// because retention has passed it, or above its end. The error is an
	// *OffsetError with both ends. Not retriable: seek.
	ErrOffsetOutOfRange = errors.New("offset out of range")
	// ErrConcurrentPoll means that Poll was called while another goroutine was
	// in Poll of the same Consumer. Not retriable: use one Consumer for each
	// goroutine.
	ErrConcurrentPoll = errors.New("concurrent Poll of one consumer")
	// ErrNotAssigned means that a consumer was asked about a partition that it
	// does not have. Not retriable.
	ErrNotAssigned = errors.New("partition is not assigned to the consumer")
	// ErrNotMember means that a consumer is not a member of its group, or not any more:
	// it did not poll for too long, or could not be heard. What it had belongs to others,
	// and what it did not commit is read again. The next Poll joins anew. Not retriable.
	ErrNotMember = errors.New("not a member of the group")
	// ErrFencedInstance means that another consumer of the group has the same
	// InstanceID. Not retriable: give each its own, or close the other.
	ErrFencedInstance = errors.New("another member has the instance id")
	// ErrGroupProtocol means that the group's members speak another protocol, as
	// Kafka clients with group.protocol=classic do. Retriable, when they have left.
	ErrGroupProtocol = errors.New("the members of the group speak another protocol")
	// ErrUnknownGroup means that there is no group of that name. Not retriable.
	ErrUnknownGroup = errors.New("unknown group")
	// ErrGroupNotEmpty means that a group cannot be changed so while it has members.
	// Not retriable: close them first.
	ErrGroupNotEmpty = errors.New("the group has members")
	// ErrGroupFull means that the group has as many members as it may have. Not
	// retriable by itself.
	ErrGroupFull = errors.New("the group is full")
)

// errNotEnoughAfterAppend is the case of ErrNotEnoughReplicas where the record is
// there.
var errNotEnoughAfterAppend = fmt.Errorf("%w, and the %w", ErrNotEnoughReplicas, ErrAmbiguous)

// What to do about some errors, as the end of their messages.
const (
	adviceUnknownTopic = "create it, or ask Topics for those there are"
	adviceOpenAgain    = "open the Log again"
	adviceTooLarge     = "make it smaller or raise max.message.bytes"

	adviceGroupProtocol = "set group.protocol=consumer in its Kafka clients, or take another group"
)

// retriableErrors are those after which the same call may succeed.
var retriableErrors = []error{
	ErrBufferFull, ErrAmbiguous, ErrNotLeader, ErrBusy, ErrDiskFull, ErrNotEnoughReplicas, ErrGroupProtocol,
}

// finalErrors win over a retriable cause that is wrapped with them.
var finalErrors = []error{
	ErrTimeout, ErrClosed, context.Canceled, context.DeadlineExceeded,
}

// Retriable tells whether the call that returned err may succeed when it is made
// again, with nothing changed but time. It is false for nil, and for the end of a
// context or of DeliveryTimeout, whatever caused the wait. After ErrAmbiguous a
// retry may write the record twice.
func Retriable(err error) bool {
	return !isAny(err, finalErrors) && isAny(err, retriableErrors)
}

// retriableAnswer is Retriable for what a partition answers: a context that ended
// there is that of a connection, never that of who waits for the record.
func retriableAnswer(err error) bool {
	return !errors.Is(err, ErrClosed) && isAny(err, retriableErrors)
}

func isAny(err error, targets []error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// wrapSeam gives errors from below their public names. Errors without one, such
// as those of contexts, stay as they are.
func wrapSeam(err error) error {
	if err == nil {
		return nil
	}
	for i := range seamErrors {
		if errors.Is(err, seamErrors[i].below) {
			if errors.Is(err, seamErrors[i].public) {
				return err
			}
			return &seamError{public: seamErrors[i].public, cause: err}
		}
	}
	return err
}

// seamError is an error from below under its public name.
type seamError struct {
	public error
	cause  error
}

func (e *seamError) Error() string   { return e.public.Error() + " (" + e.cause.Error() + ")" }
func (e *seamError) Unwrap() []error { return []error{e.public, e.cause} }
