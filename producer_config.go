package billet

import (
	"fmt"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/replication"
)

// Acks says what an acknowledgement stands for.
type Acks int8

const (
	// AcksAll: the record is stored by the topic's policy, on a majority of the
	// partition's replicas. The default.
	AcksAll Acks = iota
	// AcksLeader: the record is stored by the leader alone.
	AcksLeader
	// AcksNone: nothing is waited for and nothing retried. The callback comes
	// when the record was handed over, with UnknownOffset.
	AcksNone
)

// Compression is how a batch's records are compressed, in the log and on the
// wire.
type Compression int8

// The codecs of Kafka. NoCompression is the default.
const (
	NoCompression = Compression(batch.None)
	Gzip          = Compression(batch.Gzip)
	Snappy        = Compression(batch.Snappy)
	LZ4           = Compression(batch.LZ4)
	Zstd          = Compression(batch.Zstd)
)

// String returns Kafka's name of the codec.
func (c Compression) String() string { return batch.Codec(c).String() }

// Partitioner says how records find their partition.
type Partitioner int8

const (
	// DefaultPartitioner sends records with a key where every Kafka client
	// sends them (PartitionForKey). Records without a key stick to one
	// partition for a batch and then go to the next, past those that do not
	// take records at present.
	DefaultPartitioner Partitioner = iota
	// ManualPartitioner uses Record.Partition.
	ManualPartitioner
)

// ProducerConfig says how a Producer works. The zero value is a good one.
type ProducerConfig struct {
	// BatchBytes is where a batch is full, in bytes before compression. A
	// record beyond it gets a batch of its own. Default 64 KiB; 1 KiB to
	// 16 MiB. Larger batches cost less work per record and more memory; the
	// topic's max.message.bytes bounds them too.
	BatchBytes int
	// Linger is how long a batch that is not full waits for more records.
	// Default 0: a record that comes alone is sent at once, and batches grow by
	// themselves under load, when records come faster than they are stored. At
	// most 1 minute.
	Linger time.Duration
	// MaxInFlight bounds the batches of one partition that are sent and not yet
	// acknowledged. Default and, unless DisableIdempotence is set, bound: 16,
	// the number of batches by which a partition recognises repetitions. With
	// DisableIdempotence up to 64, where more than 1 lets retries change the
	// order.
	MaxInFlight int
	// BufferBytes bounds the memory of records that are not acknowledged yet.
	// Default 32 MiB; at least two batches. When it is used up, Produce waits,
	// or fails with FailFast.
	BufferBytes int64
	// FailFast makes Produce return ErrBufferFull instead of waiting.
	FailFast bool
	// Compression of batches. Default NoCompression.
	Compression Compression
	// CompressionLevel is the codec's level: 0 its default, else gzip 1 to 9,
	// lz4 1 to 17, zstd 1 to 22.
	CompressionLevel int
	// Acks says what an acknowledgement stands for. Default AcksAll. AcksNone
	// implies DisableIdempotence.
	Acks Acks
	// DisableIdempotence gives up the promise that retries never write a record
	// twice and never change the order. Records whose fate is unknown then fail
	// with ErrAmbiguous instead of being retried.
	DisableIdempotence bool
	// DeliveryTimeout bounds the time from Produce to the result, retries
	// included. Default 2 minutes; at least 1 ms, or negative for no bound.
	DeliveryTimeout time.Duration
	// RetryBackoff is the first wait after a retriable failure; it doubles up
	// to RetryBackoffMax. Defaults 5 ms and 1 s.
	RetryBackoff, RetryBackoffMax time.Duration
	// CloseTimeout bounds how long Close waits for records. Default 30 s;
	// negative does not wait.
	CloseTimeout time.Duration
	// Partitioner says how records find their partition.
	Partitioner Partitioner
}

// Defaults and bounds of ProducerConfig.
const (
	defaultBatchBytes      = 64 << 10
	minBatchBytes          = 1 << 10
	maxBatchBytes          = 16 << 20
	maxLinger              = time.Minute
	maxIdempotentInFlight  = replication.MaxIdempotentInFlight
	defaultMaxInFlight     = maxIdempotentInFlight
	maxInFlightBatches     = 64
	defaultBufferBytes     = 32 << 20
	defaultDeliveryTimeout = 2 * time.Minute
	minDeliveryTimeout     = time.Millisecond
	defaultRetryBackoff    = 5 * time.Millisecond
	defaultRetryBackoffMax = time.Second
	defaultCloseTimeout    = 30 * time.Second
	smallBatchCapacity     = 4 << 10
)

// EnsureDefaults fills in what is zero. NewProducer calls it.
func (c *ProducerConfig) EnsureDefaults() {
	if c.Acks == AcksNone {
		c.DisableIdempotence = true
	}
	setDefault(&c.BatchBytes, defaultBatchBytes)
	setDefault(&c.MaxInFlight, defaultMaxInFlight)
	setDefault(&c.BufferBytes, max(defaultBufferBytes, 2*int64(c.BatchBytes)))
	setDefault(&c.DeliveryTimeout, defaultDeliveryTimeout)
	setDefault(&c.RetryBackoff, defaultRetryBackoff)
	setDefault(&c.RetryBackoffMax, max(defaultRetryBackoffMax, c.RetryBackoff))
	setDefault(&c.CloseTimeout, defaultCloseTimeout)
}

// Validate returns an ErrInvalidConfig that names the first field out of bounds.
// It expects defaults to be filled in.
func (c *ProducerConfig) Validate() error {
	inFlight := maxIdempotentInFlight
	if c.DisableIdempotence {
		inFlight = maxInFlightBatches
	}
	switch {
	case c.BatchBytes < minBatchBytes || c.BatchBytes > maxBatchBytes:
		return invalidField("BatchBytes", c.BatchBytes, "%d to %d", minBatchBytes, maxBatchBytes)
	case c.Linger < 0 || c.Linger > maxLinger:
		return invalidField("Linger", c.Linger, "0 to %v", maxLinger)
	case c.MaxInFlight < 1 || c.MaxInFlight > inFlight:
		return invalidField("MaxInFlight", c.MaxInFlight, "1 to %d", inFlight)
	case c.BufferBytes < 2*int64(c.BatchBytes):
		return invalidField("BufferBytes", c.BufferBytes, "at least two batches of %d bytes", c.BatchBytes)
	case c.Compression < NoCompression || c.Compression > Zstd:
		return invalidField("Compression", int(c.Compression), "one of the constants")
	case c.Acks < AcksAll || c.Acks > AcksNone:
		return invalidField("Acks", int(c.Acks), "one of the constants")
	case c.Acks == AcksNone && !c.DisableIdempotence:
		return invalidField("DisableIdempotence", false, "true with AcksNone")
	case c.DeliveryTimeout > 0 && c.DeliveryTimeout < minDeliveryTimeout:
		return invalidField("DeliveryTimeout", c.DeliveryTimeout, "at least %v", minDeliveryTimeout)
	case c.RetryBackoff < 0:
		return invalidField("RetryBackoff", c.RetryBackoff, "above 0")
	case c.RetryBackoffMax < c.RetryBackoff:
		return invalidField("RetryBackoffMax", c.RetryBackoffMax, "at least RetryBackoff, %v", c.RetryBackoff)
	case c.Partitioner < DefaultPartitioner || c.Partitioner > ManualPartitioner:
		return invalidField("Partitioner", int(c.Partitioner), "one of the constants")
	}
	if _, err := batch.Compress(nil, nil, batch.Codec(c.Compression), c.CompressionLevel); err != nil {
		return fmt.Errorf("billet: ProducerConfig: %w: CompressionLevel: %w", ErrInvalidConfig, err)
	}
	return nil
}

// setDefault replaces a zero value.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// invalidField is an ErrInvalidConfig about a field.
func invalidField(name string, value any, allowed string, args ...any) error {
	return fmt.Errorf("billet: %w: %s is %v, allowed is %s",
		ErrInvalidConfig, name, value, fmt.Sprintf(allowed, args...))
}
