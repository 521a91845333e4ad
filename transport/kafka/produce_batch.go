package kafka

import (
	"errors"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/kerr"
)

// batch takes the one batch that records have to be. Bytes after it that are no whole
// batch are left out, as Kafka does.
func (p *produce) batch(records []byte) (batch.Batch, error) {
	b, rest, err := batch.Split(records, 0)
	switch {
	case errors.Is(err, batch.ErrTruncated):
		return nil, kerr.Errorf(kerr.INVALID_RECORD, "there is no whole record batch: %v", err)
	case errors.Is(err, batch.ErrUnsupportedMagic) && isOldFormat(records):
		return nil, kerr.Errorf(kerr.INVALID_RECORD, "only record batches of version 2 are taken: %v", err)
	case err != nil:
		return nil, kerr.Errorf(kerr.CORRUPT_MESSAGE, "%v", err)
	case len(b) < batch.HeaderSize:
		return nil, kerr.Errorf(kerr.CORRUPT_MESSAGE, "a record batch of %d bytes", len(b))
	case p.version < produceZstd && b.Codec() == batch.Zstd:
		return nil, kerr.Errorf(kerr.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs version %d of the request", produceZstd)
	case isBatch(rest):
		return nil, kerr.Errorf(kerr.INVALID_RECORD, "a partition takes one record batch at a time, and %d bytes follow", len(rest))
	}
	return b, nil
}

func isOldFormat(records []byte) bool {
	return len(records) > batch.MagicOffset && records[batch.MagicOffset] < batch.Magic
}

// isBatch says whether bytes begin with a whole batch, or with what only looks like one.
func isBatch(b []byte) bool {
	_, _, err := batch.Split(b, 0)
	return !errors.Is(err, batch.ErrTruncated)
}

// plausible refuses what no producer sends, with Kafka's codes, before the batch is
// looked at as a whole.
func plausible(b batch.Batch) error {
	count, last := b.Count(), b.LastOffsetDelta()
	switch {
	case (count <= 0 || int64(last)+1 != int64(count)) && b.CheckCRC() == nil:
		return kerr.Errorf(kerr.INVALID_RECORD, "%d records with last offset delta %d", count, last)
	case b.BaseOffset() != 0:
		return kerr.Errorf(kerr.INVALID_RECORD, "base offset %d: a producer's batches begin with 0", b.BaseOffset())
	case b.ProducerID() >= 0 && b.ProducerEpoch() < 0:
		return kerr.Errorf(kerr.INVALID_PRODUCER_EPOCH, "producer %d has epoch %d", b.ProducerID(), b.ProducerEpoch())
	case b.IsControl():
		return kerr.Errorf(kerr.INVALID_RECORD, "clients do not write control records")
	case b.TimestampType() == batch.LogAppendTime:
		return kerr.Errorf(kerr.INVALID_TIMESTAMP, "clients do not say that the time is the broker's")
	case b.IsTransactional():
		return kerr.Errorf(kerr.INVALID_TXN_STATE, "there are no transactions")
	}
	return nil
}

// transactional says whether a batch of the request belongs to a transaction.
func (p *produce) transactional() bool {
	for i := range p.q.Topics {
		for j := range p.q.Topics[i].Partitions {
			if b := batch.Batch(p.q.Topics[i].Partitions[j].Records); len(b) >= batch.HeaderSize && b.Magic() == batch.Magic && b.IsTransactional() {
				return true
			}
		}
	}
	return false
}

// tellsStart says whether the answer with an error has the partition's start: whether
// the log was asked.
func tellsStart(code int16) bool {
	switch code {
	case kerr.UNKNOWN_TOPIC_OR_PARTITION, kerr.NOT_LEADER_OR_FOLLOWER, kerr.MESSAGE_TOO_LARGE, kerr.CORRUPT_MESSAGE, kerr.KAFKA_STORAGE_ERROR,
		kerr.REQUEST_TIMED_OUT, kerr.NOT_ENOUGH_REPLICAS, kerr.UNKNOWN_SERVER_ERROR:
		return false
	}
	return true
}
