package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"
)

// put overwrites big endian bytes of a copy of b and corrects its CRC.
func put(b Batch, pos, width int, v int64) Batch {
	c := Batch(bytes.Clone(b))
	for i := range width {
		c[pos+i] = byte(v >> (8 * (width - 1 - i)))
	}
	c.updateCRC()
	return c
}

func TestValidateAcceptsWhatIsBuilt(t *testing.T) {
	for _, codec := range codecs {
		for _, n := range []int{1, 2, 100, 3000} {
			b := buildBatch(t, BuilderOptions{Codec: codec, BaseOffset: 77}, sampleRecords(n))
			if err := b.Validate(Limits{Strict: true}); err != nil {
				t.Errorf("%v, %d records: %v", codec, n, err)
			}
			if n >= 100 && b.Codec() != codec {
				t.Errorf("%v, %d records: stored as %v", codec, n, b.Codec())
			}
		}
	}
}

// The base offset and leader epoch are for the broker to set, and anything may
// be in them. All other bits count.
func TestValidateFindsEveryFlippedBit(t *testing.T) {
	for _, codec := range codecs {
		b := buildBatch(t, BuilderOptions{Codec: codec}, sampleRecords(40))
		for i := range b {
			if i < LengthOffset || (i >= LeaderEpochOffset && i < MagicOffset) {
				continue
			}
			for bit := range 8 {
				c := Batch(bytes.Clone(b))
				c[i] ^= 1 << bit
				if c.Validate(Limits{Strict: true}) == nil || c.Validate(Limits{}) == nil {
					t.Fatalf("%v: bit %d of byte %d flipped, and not found", codec, bit, i)
				}
			}
		}
	}
}

func TestValidateFindsEveryCut(t *testing.T) {
	for _, codec := range codecs {
		b := buildBatch(t, BuilderOptions{Codec: codec}, sampleRecords(40))
		for n := range b {
			if err := b[:n].Validate(Limits{}); !errors.Is(err, ErrTruncated) {
				t.Fatalf("%v: cut to %d bytes: %v", codec, n, err)
			}
			if n < HeaderSize {
				continue
			}
			// The length says so too, and even the CRC.
			c := put(b[:n], LengthOffset, 4, int64(n-PrefixSize))
			if err := c.Validate(Limits{}); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("%v: cut to %d bytes with a new CRC: %v", codec, n, err)
			}
		}
		if err := append(b, 0).Validate(Limits{}); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%v: a byte more: %v", codec, err)
		}
	}
}

func TestValidateHeaderRules(t *testing.T) {
	b := buildBatch(t, BuilderOptions{HasProducer: true, ProducerID: 9}, sampleRecords(10))
	gz := buildBatch(t, BuilderOptions{Codec: Gzip}, sampleRecords(500))
	empty := golden(t, goldenEmpty)
	for _, c := range []struct {
		name         string
		b            Batch
		want, strict error
	}{
		{"as built", b, nil, nil},
		{"magic 1", put(b, MagicOffset, 1, 1), ErrUnsupportedMagic, ErrUnsupportedMagic},
		{"attribute bit 7", put(b, AttributesOffset, 2, 0x80), ErrCorrupt, ErrCorrupt},
		{"attribute bit 15", put(b, AttributesOffset, 2, -0x8000), ErrCorrupt, ErrCorrupt},
		{"codec 5", put(b, AttributesOffset, 2, 5), ErrUnsupportedCodec, ErrUnsupportedCodec},
		{"codec 7", put(b, AttributesOffset, 2, 7), ErrUnsupportedCodec, ErrUnsupportedCodec},
		{"codec it is not", put(b, AttributesOffset, 2, 4), ErrCorrupt, ErrCorrupt},
		{"last delta -1", put(b, LastOffsetDeltaOffset, 4, -1), ErrCorrupt, ErrCorrupt},
		{"last delta less", put(b, LastOffsetDeltaOffset, 4, 8), ErrCorrupt, ErrCorrupt},
		{"last delta more", put(b, LastOffsetDeltaOffset, 4, 10), nil, ErrInvalidRecord},
		{"count -1", put(b, CountOffset, 4, -1), ErrCorrupt, ErrCorrupt},
		{"count less", put(b, CountOffset, 4, 9), ErrCorrupt, ErrInvalidRecord},
		{"count more", put(b, CountOffset, 4, 11), ErrCorrupt, ErrCorrupt},
		{"count 0", put(b, CountOffset, 4, 0), ErrCorrupt, ErrCorrupt},
		{"counts huge", put(put(gz, CountOffset, 4, math.MaxInt32), LastOffsetDeltaOffset, 4, math.MaxInt32-1), ErrCorrupt, ErrCorrupt},
		{"base offset -1", put(b, BaseOffsetOffset, 8, -1), ErrCorrupt, ErrCorrupt},
		{"offsets overflow", put(b, BaseOffsetOffset, 8, math.MaxInt64-9), ErrCorrupt, ErrCorrupt},
		{"offsets just fit", put(b, BaseOffsetOffset, 8, math.MaxInt64-10), nil, nil},
		{"max timestamp", put(b, MaxTimestampOffset, 8, 5), nil, ErrMaxTimestamp},
		{"max timestamp of the leader", put(put(b, MaxTimestampOffset, 8, 5), AttributesOffset, 2, 8), nil, nil},
		{"delete horizon", put(b, AttributesOffset, 2, 0x40), nil, ErrInvalidRecord},
		{"no sequence", put(b, BaseSequenceOffset, 4, -1), nil, ErrInvalidRecord},
		{"no epoch", put(b, ProducerEpochOffset, 2, -1), nil, ErrInvalidRecord},
		{"transaction of nobody", put(put(b, ProducerIDOffset, 8, -1), AttributesOffset, 2, 0x10), nil, ErrInvalidRecord},
		{"marker", golden(t, goldenMarker), nil, nil},
		{"empty", empty, nil, ErrInvalidRecord},
		{"empty of one record", put(empty, CountOffset, 4, 1), ErrCorrupt, ErrCorrupt},
	} {
		if err := c.b.Validate(Limits{}); !errors.Is(err, c.want) || (c.want == nil && err != nil) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if err := c.b.Validate(Limits{Strict: true}); !errors.Is(err, c.strict) || (c.strict == nil && err != nil) {
			t.Errorf("%s, strict: %v, want %v", c.name, err, c.strict)
		}
	}
}

func TestMaxTimestampIsRepaired(t *testing.T) {
	b := put(buildBatch(t, BuilderOptions{}, sampleRecords(10)), MaxTimestampOffset, 8, 5)
	var wrong *MaxTimestampError
	if err := b.Validate(Limits{Strict: true}); !errors.As(err, &wrong) || wrong.Header != 5 {
		t.Fatalf("%v", err)
	}
	b.SetMaxTimestamp(wrong.Records)
	fatalIf(t, b.Validate(Limits{Strict: true}))
	if b.MaxTimestamp() != 1700000000006 {
		t.Fatalf("max timestamp %d", b.MaxTimestamp())
	}
}

// rawBatch makes a batch of hand-made record bytes.
func rawBatch(count, lastDelta int32, records ...byte) Batch {
	b := make(Batch, HeaderSize, HeaderSize+len(records))
	b = append(b, records...)
	b[MagicOffset] = Magic
	binary.BigEndian.PutUint32(b[LengthOffset:], uint32(len(b)-PrefixSize))
	binary.BigEndian.PutUint32(b[LastOffsetDeltaOffset:], uint32(lastDelta))
	binary.BigEndian.PutUint32(b[CountOffset:], uint32(count))
	binary.BigEndian.PutUint64(b[ProducerIDOffset:], math.MaxUint64)
	b.updateCRC()
	return b
}

func TestValidateRecordRules(t *testing.T) {
	for _, c := range []struct {
		name   string
		detail string // of the PositionError, "" if valid
		b      Batch
	}{
		{"least record", "", rawBatch(1, 0, 12, 0, 0, 0, 1, 1, 0)},
		{"length in two bytes", "", rawBatch(1, 0, 0x8c, 0, 0, 0, 0, 1, 1, 0)},
		{"attributes of the future", "", rawBatch(1, 0, 12, 9, 0, 0, 1, 1, 0)},
		{"gap", "", rawBatch(2, 5, 12, 0, 0, 2, 1, 1, 0, 12, 0, 0, 10, 1, 1, 0)},
		{"length 0", "bad timestamp delta", rawBatch(1, 0, 0, 0, 0, 0, 1, 1, 0)},
		{"length -1", "record length -1, but 6 bytes are left", rawBatch(1, 0, 1, 0, 0, 0, 1, 1, 0)},
		{"length too long", "record length 7, but 6 bytes are left", rawBatch(1, 0, 14, 0, 0, 0, 1, 1, 0)},
		{"length without end", "no record length", rawBatch(1, 0, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0)},
		{"length of 33 bits", "no record length", rawBatch(1, 0, 0x8c, 0x80, 0x80, 0x80, 0x10, 0, 0, 0, 1, 1, 0)},
		{"length too short", "bad header count", rawBatch(1, 0, 10, 0, 0, 0, 1, 1, 0)},
		{"bytes after the fields", "record has 1 bytes too many", rawBatch(1, 0, 14, 0, 0, 0, 1, 1, 0, 0)},
		{"bytes after the records", "1 bytes after the last record", rawBatch(1, 0, 12, 0, 0, 0, 1, 1, 0, 0)},
		{"delta -1", "offset delta -1 is not between 0 and 0", rawBatch(1, 0, 12, 0, 0, 1, 1, 1, 0)},
		{"delta beyond the last", "offset delta 1 is not between 0 and 0", rawBatch(1, 0, 12, 0, 0, 2, 1, 1, 0)},
		{"delta twice", "offset delta 0 is not between 1 and 1", rawBatch(2, 1, 12, 0, 0, 0, 1, 1, 0, 12, 0, 0, 0, 1, 1, 0)},
		{"delta of no end", "bad offset delta", rawBatch(1, 0, 14, 0, 0, 0x80, 0x80, 0x80, 0x80, 0x80)},
		{"timestamp of no end", "bad timestamp delta", rawBatch(1, 0, 12, 0, 0x80, 0x80, 0x80, 0x80, 0x80)},
		{"key of -2", "bad key", rawBatch(1, 0, 12, 0, 0, 0, 3, 1, 0)},
		{"key past the record", "bad key", rawBatch(1, 0, 12, 0, 0, 0, 6, 1, 0)},
		{"value past the record", "bad value", rawBatch(1, 0, 12, 0, 0, 0, 1, 4, 0)},
		{"headers -1", "bad header count", rawBatch(1, 0, 12, 0, 0, 0, 1, 1, 1)},
		{"a header and no room", "1 bad headers", rawBatch(1, 0, 12, 0, 0, 0, 1, 1, 2)},
		{"a header with a null name", "1 bad headers", rawBatch(1, 0, 16, 0, 0, 0, 1, 1, 2, 1, 1)},
		{"a header with a null value", "", rawBatch(1, 0, 16, 0, 0, 0, 1, 1, 2, 0, 1)},
		{"very many headers", "2147483647 bad headers", rawBatch(1, 0, 20, 0, 0, 0, 1, 1, 0xfe, 0xff, 0xff, 0xff, 0x0f)},
	} {
		err := c.b.Validate(Limits{})
		if c.detail == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		var at *PositionError
		if !errors.As(err, &at) || !errors.Is(err, ErrCorrupt) || at.Detail != c.detail {
			t.Errorf("%s: %v, want %q", c.name, err, c.detail)
		}
	}
}

func TestValidateSkipCRC(t *testing.T) {
	b := bytes.Clone(golden(t, goldenOne))
	b[CRCOffset] ^= 1
	if err := Batch(b).CheckCRC(); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("%v", err)
	}
	if err := Batch(b[:20]).CheckCRC(); !errors.Is(err, ErrTruncated) {
		t.Fatalf("%v", err)
	}
	fatalIf(t, Batch(b).Validate(Limits{SkipCRC: true}))
}

func TestValidateBoundsDecompression(t *testing.T) {
	for _, codec := range codecs[1:] {
		b := buildBatch(t, BuilderOptions{Codec: codec}, []Record{{Value: make([]byte, 1<<20)}})
		if err := b.Validate(Limits{MaxDecompressed: 1 << 20}); !errors.Is(err, ErrTooLarge) {
			t.Errorf("%v: %v", codec, err)
		}
		if err := b.Validate(Limits{MaxDecompressed: 1<<20 + 20}); err != nil {
			t.Errorf("%v: %v", codec, err)
		}
	}
}

func TestValidateRefusesFramesThatFewRead(t *testing.T) {
	b := buildBatch(t, BuilderOptions{}, sampleRecords(300))
	for _, c := range []struct {
		name  string
		codec Codec
		frame []byte
	}{
		{"S2 block", Snappy, s2Block(b.Records())},
		{"S2 block framed", Snappy, xerial(s2Block(b.Records()))},
		{"linked lz4 blocks", LZ4, linkedLZ4(b.Records())},
	} {
		d := Batch(append(bytes.Clone(b[:HeaderSize]), c.frame...))
		d = put(d, LengthOffset, 4, int64(len(d)-PrefixSize))
		d = put(d, AttributesOffset, 2, int64(c.codec))
		if err := d.Validate(Limits{}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if err := d.Validate(Limits{Strict: true}); !errors.Is(err, ErrInvalidRecord) {
			t.Errorf("%s, strict: %v", c.name, err)
		}
	}
}
