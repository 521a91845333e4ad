// Package billet is a durable log with Kafka's shape inside one Go process:
// topics, partitions, offsets, record batches, producers, consumers and consumer
// groups, on one directory, without a server. Given an address it is a node of a
// cluster ([Config.Cluster]), a broker for Kafka's clients ([Config.Kafka]), or both.
//
//	log, err := billet.Open(billet.Config{Dir: "data"})
//	err = log.CreateTopic(ctx, billet.Topic{Name: "orders", Partitions: 8})
//	at, err := log.Produce(ctx, billet.Record{Topic: "orders", Key: k, Value: v})
//
// # Map
//
// A [Log] is one open node. [Log.Produce] writes one record and waits. A
// [Producer] gathers records into batches and calls back. A [Consumer] reads
// partitions in order, waiting for what is to come; a [Partition] reads without
// state. Consumers with a [ConsumerConfig.Group] share the partitions of its
// topics, with Kafka clients too, and commit how far they are. [Log.CreateTopic], [Log.AlterTopic], [Log.AddPartitions] and
// [Log.DeleteTopic] change topics; [Settings] lists what can be set.
// [Config.OnEvent] and [Log.Metrics] tell how the log is. [Log.Nodes], [Log.Reassign],
// [Log.DrainNode] and their like manage a cluster.
//
// # Guarantees
//
//   - A record whose produce returned without an error, or whose callback got
//     none, is stored at the offset given, and stays there until retention
//     deletes it. Under billet.fsync=commit, the default, it was durable
//     (fdatasync) before that. Under billet.fsync=interval a crash of the process
//     loses nothing, a crash of the machine at most what flush.ms allows, and
//     EventUnsyncedLost tells of it.
//   - Consumers see only acknowledged records: nothing they have read is gone
//     after a crash, but for the case of fsync=interval above.
//   - Offsets of a partition begin at 0 and have no gaps.
//   - Records of one Producer are in each partition in the order of the Produce
//     calls, each once, whatever was retried. Retries happen by themselves and
//     end with DeliveryTimeout.
//   - An error that wraps [ErrAmbiguous] means that the record may or may not be
//     there. With every other error of produce it is not there.
//   - A record is acknowledged, by default, when a majority of its partition's
//     replicas have it. It is not lost, and neither is a commit of a group, while a
//     majority of them survives, whatever else fails.
//   - What a consumer group has committed is durable when Commit returns. Each record
//     is returned to a member of the group at least once, to two only when one of them
//     lost its place before it had committed.
//   - Bytes are verified by checksum before they are returned. A damaged
//     partition is quarantined: its files stay as they are, an event and
//     [ErrQuarantined] tell where, and everything else works.
//   - A full disk refuses records with [ErrDiskFull] and is recovered from
//     without help. Reading and retention go on.
//   - The library does not end the process, install signal handlers, print, read
//     the environment or keep global state. It logs to [Config.Logger] alone. After
//     [Log.Close] no goroutine, file or lock of it is left. Several Logs on
//     different directories may be open in one process.
//   - Every call that can wait takes a context, and returns at once when that
//     ends or has ended. Every queue and buffer has a bound in a config struct.
//
// # Duties of the caller
//
//   - Close producers before the Log; records a Producer still holds when the Log
//     closes fail with ErrClosed.
//   - Records returned by [Consumer.Poll] are valid until the next Poll; use
//     [Record.Clone] to keep one. One goroutine at a time polls a Consumer.
//   - Callbacks of a Producer share one goroutine and must be quick. Those of a
//     Consumer run within Poll; they must not call Poll or Close.
//   - A Consumer in a group polls within MaxPollInterval, or leaves the group.
//   - One Log at a time has a directory, which the file LOCK in it enforces on
//     local file systems. Nothing else may write there.
//
// # Errors
//
// Errors wrap the sentinels of this package, so branch with errors.Is, and ask
// [Retriable] whether trying again can help. Messages say what happened, to which
// topic and partition, and what to do.
//
// # Out of scope
//
// Transactions, compaction by key, share groups. The files are already laid out for
// the first two.
package billet
