package broker

import (
	"errors"
	"syscall"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/kerr"
	"github.com/billetlog/billet/replication"
	"github.com/billetlog/billet/segment"
	"github.com/billetlog/billet/transport/kafka"
)

// wireCodes gives errors from below the codes that Kafka's clients know. The first that
// fits counts.
var wireCodes = []struct {
	err  error
	code int16
}{
	{replication.ErrNotEnoughReplicasAfterAppend, kerr.NOT_ENOUGH_REPLICAS_AFTER_APPEND},
	{replication.ErrAmbiguous, kerr.REQUEST_TIMED_OUT},
	{replication.ErrNotEnoughReplicas, kerr.NOT_ENOUGH_REPLICAS},
	{replication.ErrNotLeader, kerr.NOT_LEADER_OR_FOLLOWER},
	{replication.ErrOutOfOrderSequence, kerr.OUT_OF_ORDER_SEQUENCE_NUMBER},
	{replication.ErrProducerFenced, kerr.INVALID_PRODUCER_EPOCH},
	{replication.ErrInvalidTimestamp, kerr.INVALID_TIMESTAMP},
	{replication.ErrTooLarge, kerr.MESSAGE_TOO_LARGE},
	{replication.ErrInvalidBatch, kerr.INVALID_RECORD},
	{replication.ErrDiskFull, kerr.KAFKA_STORAGE_ERROR},
	{syscall.ENOSPC, kerr.KAFKA_STORAGE_ERROR},
	{replication.ErrQuarantined, kerr.KAFKA_STORAGE_ERROR},
	{replication.ErrFailed, kerr.KAFKA_STORAGE_ERROR},
	{replication.ErrClosed, kerr.NOT_LEADER_OR_FOLLOWER},
	{replication.ErrUnknownTopic, kerr.UNKNOWN_TOPIC_OR_PARTITION},
	{replication.ErrInvalidTopic, kerr.INVALID_TOPIC_EXCEPTION},
	{replication.ErrInvalidAssignment, kerr.INVALID_REPLICA_ASSIGNMENT},
	{replication.ErrOffsetOutOfRange, kerr.OFFSET_OUT_OF_RANGE},
	{replication.ErrUnknownNode, kerr.INVALID_REPLICA_ASSIGNMENT},
	{replication.ErrNoReassignment, kerr.NO_REASSIGNMENT_IN_PROGRESS},
	{replication.ErrElectionNotNeeded, kerr.ELECTION_NOT_NEEDED},
	{replication.ErrPreferredLeader, kerr.PREFERRED_LEADER_NOT_AVAILABLE},
	{replication.ErrTopicExists, kerr.TOPIC_ALREADY_EXISTS},
	{replication.ErrInvalidPartitions, kerr.INVALID_PARTITIONS},
	{replication.ErrInvalidConfig, kerr.INVALID_CONFIG},
	{replication.ErrNotEnoughNodes, kerr.INVALID_REPLICATION_FACTOR},
	{segment.ErrCompacted, kerr.OFFSET_OUT_OF_RANGE},
	{segment.ErrUnavailable, kerr.OFFSET_OUT_OF_RANGE},
	{segment.ErrCorrupt, kerr.KAFKA_STORAGE_ERROR},
	{batch.ErrUnsupportedCodec, kerr.UNSUPPORTED_COMPRESSION_TYPE},
	{batch.ErrUnsupportedMagic, kerr.UNSUPPORTED_FOR_MESSAGE_FORMAT},
	{batch.ErrTooLarge, kerr.MESSAGE_TOO_LARGE},
	{batch.ErrInvalidRecord, kerr.INVALID_RECORD},
	{batch.ErrMaxTimestamp, kerr.INVALID_RECORD},
	{batch.ErrCorrupt, kerr.CORRUPT_MESSAGE},
	{batch.ErrTruncated, kerr.CORRUPT_MESSAGE},
}

// recordErrors are the records that an error is about.
func recordErrors(err error) []kerr.RecordError {
	var faulty *replication.RecordsError
	if !errors.As(err, &faulty) {
		return nil
	}
	out := make([]kerr.RecordError, 0, len(faulty.Records))
	for _, r := range faulty.Records {
		out = append(out, kerr.RecordError(r))
	}
	return out
}

// wireError makes an error from below one for clients. What has no code stays as it is.
func wireError(err error) error {
	if err == nil {
		return nil
	}
	var told *kerr.Error
	if errors.As(err, &told) {
		return err
	}
	if errors.Is(err, replication.ErrBusy) {
		return kafka.ErrBusy
	}
	for i := range wireCodes {
		if errors.Is(err, wireCodes[i].err) {
			return &kerr.Error{Code: wireCodes[i].code, Message: err.Error(), Records: recordErrors(err)}
		}
	}
	return err
}
