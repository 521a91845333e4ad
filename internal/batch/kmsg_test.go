package batch

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// parseWithKmsg decodes b with franz-go's types, decompressing with our codec.
func parseWithKmsg(t require, b Batch) []Record {
	t.Helper()
	var k kmsg.RecordBatch
	if err := k.ReadFrom(b); err != nil {
		t.Fatalf("kmsg refuses the batch: %v", err)
	}
	raw, err := Decompress(nil, k.Records, Codec(k.Attributes&7), 0)
	if err != nil {
		t.Fatalf("decompress: %v", err)
	}
	if k.FirstOffset != b.BaseOffset() || int(k.Length)+12 != b.Size() ||
		k.PartitionLeaderEpoch != b.LeaderEpoch() || k.Magic != b.Magic() || uint32(k.CRC) != b.CRC() ||
		k.Attributes != b.Attributes() || k.LastOffsetDelta != b.LastOffsetDelta() ||
		k.FirstTimestamp != b.BaseTimestamp() || k.MaxTimestamp != b.MaxTimestamp() ||
		k.ProducerID != b.ProducerID() || k.ProducerEpoch != b.ProducerEpoch() ||
		k.FirstSequence != b.BaseSequence() || int(k.NumRecords) != b.Count() {
		t.Fatalf("header differs: kmsg %+v", k)
	}
	records := make([]Record, 0, k.NumRecords)
	for range k.NumRecords {
		length, n := binary.Varint(raw)
		var r kmsg.Record
		if err := r.ReadFrom(raw[:n+int(length)]); err != nil {
			t.Fatalf("kmsg refuses a record: %v", err)
		}
		raw = raw[n+int(length):]
		rec := Record{Offset: k.FirstOffset + int64(r.OffsetDelta),
			Timestamp: k.FirstTimestamp + r.TimestampDelta64, Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			rec.Headers = append(rec.Headers, Header{Key: h.Key, Value: h.Value})
		}
		records = append(records, rec)
	}
	if len(raw) != 0 {
		t.Fatalf("%d bytes after kmsg's last record", len(raw))
	}
	return records
}

// buildWithKmsg encodes a batch with franz-go's types.
func buildWithKmsg(t require, opts BuilderOptions, records []Record) Batch {
	t.Helper()
	var raw []byte
	maxTimestamp := records[0].Timestamp
	for i, rec := range records {
		maxTimestamp = max(maxTimestamp, rec.Timestamp)
		r := kmsg.Record{TimestampDelta64: rec.Timestamp - records[0].Timestamp,
			OffsetDelta: int32(i), Key: rec.Key, Value: rec.Value}
		for _, h := range rec.Headers {
			r.Headers = append(r.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
		}
		body := r.AppendTo(nil)[1:] // a length of 0 takes one byte
		raw = binary.AppendVarint(raw, int64(len(body)))
		raw = append(raw, body...)
	}
	compressed, err := Compress(nil, raw, opts.Codec, opts.Level)
	if err != nil {
		t.Fatalf("compress: %v", err)
	}
	k := kmsg.RecordBatch{
		FirstOffset: opts.BaseOffset, Length: int32(HeaderSize - PrefixSize + len(compressed)),
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: int16(opts.Codec),
		LastOffsetDelta: int32(len(records) - 1), FirstTimestamp: records[0].Timestamp,
		MaxTimestamp: maxTimestamp, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1,
		NumRecords: int32(len(records)), Records: compressed,
	}
	if opts.HasProducer {
		k.ProducerID, k.ProducerEpoch, k.FirstSequence = opts.ProducerID, opts.ProducerEpoch, opts.BaseSequence
	}
	if opts.Transactional {
		k.Attributes |= 0x10
	}
	b := k.AppendTo(nil)
	crc := crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli))
	binary.BigEndian.PutUint32(b[17:], crc)
	return b
}

func TestBuiltBatchesReadWithKmsg(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts, records := drawOptions(t), drawRecords(t)
		b := buildBatch(t, opts, records)
		got := parseWithKmsg(t, b)
		setOffsets(records, opts.BaseOffset)
		compareRecords(t, got, records)
	})
}

func TestKmsgBatchesReadWithUs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts, records := drawOptions(t), drawRecords(t)
		b := buildWithKmsg(t, opts, records)
		if err := b.Validate(Limits{Strict: true}); err != nil {
			t.Fatalf("validate: %v", err)
		}
		got, err := DecodeAll(b, 0)
		if err != nil {
			t.Fatalf("decode: %v", err)
		}
		setOffsets(records, opts.BaseOffset)
		compareRecords(t, got, records)
	})
}

func TestBuilderWritesTheBytesKmsgWrites(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts, records := drawOptions(t), drawRecords(t)
		opts.Codec = None
		if ours, theirs := buildBatch(t, opts, records), buildWithKmsg(t, opts, records); !bytes.Equal(ours, theirs) {
			t.Fatalf("bytes differ:\nours   %x\ntheirs %x", ours, theirs)
		}
	})
}
