package differ

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// batchHeader is the length of a record batch without its records.
const batchHeader = 61

// batch is a record batch to send. The zero value has no records; fields that are
// nil are what a client would write.
type batch struct {
	values     []string
	key        *string
	nullKeys   bool
	producer   int64 // counts if there is an epoch
	epoch      *int16
	sequence   int32
	codec      int
	attributes int16
	time       int64 // of the first record; each next one is a millisecond later
	maxTime    *int64
	count      *int32
	lastDelta  *int32
	baseOffset int64
	magic      int8
	badCRC     bool
	cut        int // bytes missing at the end
}

// theTime is when records of scenarios were made that do not say.
const theTime = 1_500_000_000_000

func ptr[T any](v T) *T { return &v }

func or[T any](p *T, v T) T {
	if p != nil {
		return *p
	}
	return v
}

// bytes encodes the batch.
func (b batch) bytes() []byte {
	if b.time == 0 {
		b.time = theTime
	}
	var records []byte
	for i, v := range b.values {
		records = append(records, b.record(i, v)...)
	}
	if b.codec != 0 {
		records = compress(b.codec, records)
	}
	n := int32(len(b.values))
	w := kmsg.RecordBatch{
		FirstOffset: b.baseOffset, Length: int32(batchHeader - 12 + len(records)), PartitionLeaderEpoch: -1,
		Magic: 2, Attributes: b.attributes | int16(b.codec), LastOffsetDelta: or(b.lastDelta, n-1),
		FirstTimestamp: b.time, MaxTimestamp: or(b.maxTime, b.time+int64(max(n-1, 0))),
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: or(b.count, n), Records: records,
	}
	if b.magic != 0 {
		w.Magic = b.magic
	}
	if b.epoch != nil {
		w.ProducerID, w.ProducerEpoch, w.FirstSequence = b.producer, *b.epoch, b.sequence
	}
	raw := w.AppendTo(nil)
	sum := crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli))
	if b.badCRC {
		sum++
	}
	binary.BigEndian.PutUint32(raw[17:], sum)
	return raw[:len(raw)-b.cut]
}

func (b batch) record(i int, value string) []byte {
	var body []byte
	body = append(body, 0) // attributes
	body = binary.AppendVarint(body, int64(i))
	body = binary.AppendVarint(body, int64(i))
	key := fmt.Sprint("k", i)
	if b.key != nil {
		key = *b.key
	}
	if b.nullKeys {
		body = binary.AppendVarint(body, -1)
	} else {
		body = append(binary.AppendVarint(body, int64(len(key))), key...)
	}
	body = append(binary.AppendVarint(body, int64(len(value))), value...)
	body = binary.AppendVarint(body, 0) // headers
	return append(binary.AppendVarint(nil, int64(len(body))), body...)
}

func compress(codec int, records []byte) []byte {
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	c, err := kgo.DefaultCompressor(codecs[codec])
	if err != nil {
		panic(err)
	}
	var buf bytes.Buffer
	out, _ := c.Compress(&buf, records)
	return bytes.Clone(out)
}

// batchLines writes what is in fetched batches.
func (n *names) batchLines(path string, raw []byte) []string {
	if len(raw) == 0 {
		return []string{path + "=empty"}
	}
	var lines []string
	for at := 0; at < len(raw); {
		if len(raw)-at < batchHeader {
			return append(lines, fmt.Sprintf("%s: %d bytes of a batch", path, len(raw)-at))
		}
		var b kmsg.RecordBatch
		size := 12 + int(int32(binary.BigEndian.Uint32(raw[at+8:])))
		if size < batchHeader || at+size > len(raw) {
			return append(lines, fmt.Sprintf("%s: %d bytes of a batch at %d", path, len(raw)-at, binary.BigEndian.Uint64(raw[at:])))
		}
		if err := b.ReadFrom(raw[at : at+size]); err != nil {
			return append(lines, fmt.Sprintf("%s: %v", path, err))
		}
		sum := crc32.Checksum(raw[at+21:at+size], crc32.MakeTable(crc32.Castagnoli))
		lines = append(lines, fmt.Sprintf("%s: batch at %d epoch %s magic %d attributes %d last %d times %s %s producer %s epoch %d sequence %d count %d bytes %d crc right %v",
			path, b.FirstOffset, n.leaderText(b.PartitionLeaderEpoch), b.Magic, b.Attributes, b.LastOffsetDelta, n.numberText("", b.FirstTimestamp),
			n.numberText("", b.MaxTimestamp), n.numberText("ProducerID", b.ProducerID), b.ProducerEpoch, b.FirstSequence, b.NumRecords,
			len(b.Records), uint32(b.CRC) == sum))
		at += size
	}
	return lines
}
