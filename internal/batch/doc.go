// Package batch reads and writes Kafka record batches (message format v2,
// magic 2), byte for byte as Kafka and its clients do.
//
// A [Batch] is a view: a byte slice holding exactly one batch, whose accessors
// read header fields in place. [Split] takes batches off a longer slice,
// [Batch.Validate] proves that one may be stored or served, a [Reader] walks its
// records, a [Builder] makes new ones. [Compress] and [Decompress] are the five
// codecs, and [PartitionForKey] is Kafka's default choice of a partition.
//
// # Guarantees
//
//   - Hostile bytes never cause a panic. Every length is checked against the
//     bytes that are really there before it is used.
//   - What hostile bytes can make Validate and Decompress allocate is bounded
//     by the caller (Limits.MaxDecompressed, or the max of Decompress), a small
//     factor aside while buffers grow. Sizes that a frame claims for itself are
//     compared with what its bytes could possibly yield before anything is
//     allocated for them. Collected headers (Reader.Next) and DecodeAll cost
//     more than the bytes they come from; their comments say how much.
//   - A batch accepted by Validate with Limits.Strict uses no encoding known to
//     be read by some Kafka clients only: neither S2's dialect of snappy nor lz4
//     blocks that depend on one another.
//   - The package starts no goroutines and keeps no state besides pools of
//     codecs and buffers. Functions and Batch accessors may be used
//     concurrently as long as nobody writes the bytes; Reader and Builder
//     belong to one goroutine at a time.
//
// # Duties of the caller
//
// Accessors of Batch check nothing: call CheckHeader, or use a batch that came
// out of Validate or Builder.Finish. The CRC covers neither the base offset,
// nor the length, nor the leader epoch; whoever stores batches must protect
// those by other means. Decoded records alias memory that is reused: see
// [Reader.Next] for how long they live and [Record.Clone] to keep them.
//
// # Out of scope
//
// Message formats v0 and v1, the meaning of control records beyond their
// encoding, sequence numbers across batches, and all input and output.
package batch
