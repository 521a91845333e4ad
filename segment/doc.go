// Package segment is one replica's log on disk: the ordered frames of one Raft group, which are at the same time the record batches
// that consumers read. It knows nothing of topics, of Raft's rules or of sockets.
//
// A [Log] is a folder of segment files. Its single writer appends Raft entries; each becomes one frame. A frame is a Kafka record batch
// (magic 2), byte for byte, or an internal frame that readers never see. Readers run beside the writer and hold what they read: a
// segment that retention deletes stays readable for those who have it.
//
// Append makes nothing durable. The caller does, in one of three ways: [Log.Sync] (fdatasync of the files), a redo record in the
// node-wide [Journal] (one fdatasync for many logs), or later, within a bound. What is promised after a crash follows from that and is
// told in docs/design/0001-segments-journal-slots.md; docs/format.md has every byte.
//
// Another replica can have a log from its first segment on: an [Extent] pins it and gives the bytes of its frames, and an [Importer]
// verifies them and makes a log of them in a generation's folder of its own (docs/design/0006-catch-up.md).
//
// Errors: damage is a [*CorruptionError] with file and position. After a failed write or sync a Log refuses every further write with
// the first error ([ErrFailed]); it never retries a failed fsync.
package segment
