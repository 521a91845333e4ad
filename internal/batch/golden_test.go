package batch

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

// Batches written out by hand from the format's description, with CRCs from a
// bitwise implementation. They are the wire format: a test that fails here is
// right and the code is wrong.
const (
	goldenOne = `
	00 00 00 00 00 00 00 00   base offset 0
	00 00 00 3b               length 59
	ff ff ff ff               leader epoch -1
	02                        magic
	6e 55 92 08               crc
	00 00                     attributes
	00 00 00 00               last offset delta 0
	00 00 01 74 87 6e 80 00   base timestamp 1600000000000
	00 00 01 74 87 6e 80 00   max timestamp
	ff ff ff ff ff ff ff ff   producer id -1
	ff ff                     producer epoch -1
	ff ff ff ff               base sequence -1
	00 00 00 01               count 1
	12 00 00 00 02 6b 04 68 69 00   record: key "k", value "hi"`

	goldenThree = `
	00 00 01 00 00 00 00 00   base offset 2^40
	00 00 00 99               length 153
	00 00 00 07               leader epoch 7
	02                        magic
	c0 6f 76 4a               crc
	00 10                     attributes: transactional
	00 00 00 02               last offset delta 2
	00 00 01 8b cf e5 68 00   base timestamp 1700000000000
	00 00 01 8b cf e5 69 2c   max timestamp 300 ms later
	00 00 00 00 00 00 0f a0   producer id 4000
	00 03                     producer epoch 3
	7f ff ff fe               base sequence 2^31-2: wraps to 0
	00 00 00 03               count 3
	0c 00 00 00 01 01 00      record: null key, null value
	16 00 09 02 00 00         record: 5 ms before base, delta 1, empty key and value
	   04 02 68 01 00 00        headers "h": null, "": empty
	a6 01 00 d8 04 04 02 6b   record: 300 ms after base, delta 2, key "k"
	   8c 01                    value of 70 bytes
	   76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76
	   76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76
	   76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76 76
	   02 02 6e 02 31           header "n": "1"`

	goldenMarker = `
	00 00 00 00 00 00 00 2a   base offset 42
	00 00 00 42               length 66
	00 00 00 05               leader epoch 5
	02                        magic
	3a 97 60 04               crc
	00 30                     attributes: transactional, control
	00 00 00 00               last offset delta 0
	00 00 01 8b cf e5 68 00   base timestamp
	00 00 01 8b cf e5 68 00   max timestamp
	00 00 00 00 00 00 0f a0   producer id 4000
	00 03                     producer epoch 3
	ff ff ff ff               base sequence -1
	00 00 00 01               count 1
	20 00 00 00               record
	   08 00 00 00 01           key: version 0, type 1, commit
	   0c 00 00 00 00 00 09     value: version 0, coordinator epoch 9
	   00                       no headers`

	goldenEmpty = `
	00 00 00 00 00 00 00 5a   base offset 90
	00 00 00 31               length 49
	00 00 00 02               leader epoch 2
	02                        magic
	54 e1 dd b6               crc
	00 10                     attributes: transactional
	00 00 00 09               last offset delta 9
	ff ff ff ff ff ff ff ff   base timestamp -1
	00 00 01 8b cf e5 68 00   max timestamp 1700000000000
	00 00 00 00 00 00 0f a0   producer id 4000
	00 03                     producer epoch 3
	00 00 00 11               base sequence 17
	00 00 00 00               count 0`
)

// golden takes the hex bytes out of a picture: on each line, words of two hex
// digits until the first that is something else.
func golden(t testing.TB, picture string) Batch {
	t.Helper()
	var b []byte
	for line := range strings.Lines(picture) {
		for _, word := range strings.Fields(line) {
			d, err := hex.DecodeString(word)
			if err != nil || len(word) != 2 {
				break
			}
			b = append(b, d...)
		}
	}
	return b
}

func TestGoldenBytes(t *testing.T) {
	const ts = 1700000000000
	txn := BuilderOptions{HasProducer: true, ProducerID: 4000, ProducerEpoch: 3, Transactional: true}
	three, marker, empty := txn, txn, txn
	three.BaseOffset, three.BaseSequence = 1<<40, 1<<31-2
	marker.BaseOffset, marker.BaseSequence, marker.Control = 42, -1, true
	empty.BaseOffset, empty.BaseSequence = 90, 17

	for _, c := range []struct {
		name    string
		picture string
		opts    BuilderOptions
		epoch   int32
		build   func(b *Builder)
	}{
		{"one", goldenOne, BuilderOptions{}, -1, func(b *Builder) {
			b.Append(1600000000000, []byte("k"), []byte("hi"), nil)
		}},
		{"three", goldenThree, three, 7, func(b *Builder) {
			b.Append(ts, nil, nil, nil)
			b.Append(ts-5, []byte{}, []byte{}, []Header{{Key: "h"}, {Value: []byte{}}})
			b.Append(ts+300, []byte("k"), bytes.Repeat([]byte("v"), 70), []Header{{Key: "n", Value: []byte("1")}})
		}},
		{"marker", goldenMarker, marker, 5, func(b *Builder) {
			b.Append(ts, []byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 9}, nil)
		}},
		{"empty", goldenEmpty, empty, 2, func(b *Builder) {
			b.RetainOffsets(9)
			b.RetainMaxTimestamp(ts)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := golden(t, c.picture)
			fatalIf(t, want.Validate(Limits{}))
			var b Builder
			b.Reset(c.opts)
			c.build(&b)
			got, err := b.Finish()
			fatalIf(t, err)
			got.SetLeaderEpoch(c.epoch)
			if !bytes.Equal(got, want) {
				t.Fatalf("got\n%x, want\n%x", got, want)
			}
		})
	}
}

func TestGoldenThreeFields(t *testing.T) {
	b := golden(t, goldenThree)
	if len(b) != 165 || b.Size() != 165 {
		t.Fatalf("size %d of %d bytes", b.Size(), len(b))
	}
	for _, c := range []struct {
		field     string
		got, want any
	}{
		{"BaseOffset", b.BaseOffset(), int64(1 << 40)},
		{"LeaderEpoch", b.LeaderEpoch(), int32(7)},
		{"Magic", b.Magic(), int8(2)},
		{"CRC", b.CRC(), uint32(0xc06f764a)},
		{"Attributes", b.Attributes(), int16(0x10)},
		{"Codec", b.Codec(), None},
		{"TimestampType", b.TimestampType(), CreateTime},
		{"IsTransactional", b.IsTransactional(), true},
		{"IsControl", b.IsControl(), false},
		{"HasDeleteHorizon", b.HasDeleteHorizon(), false},
		{"LastOffsetDelta", b.LastOffsetDelta(), int32(2)},
		{"LastOffset", b.LastOffset(), int64(1<<40 + 2)},
		{"NextOffset", b.NextOffset(), int64(1<<40 + 3)},
		{"BaseTimestamp", b.BaseTimestamp(), int64(1700000000000)},
		{"MaxTimestamp", b.MaxTimestamp(), int64(1700000000300)},
		{"ProducerID", b.ProducerID(), int64(4000)},
		{"ProducerEpoch", b.ProducerEpoch(), int16(3)},
		{"BaseSequence", b.BaseSequence(), int32(1<<31 - 2)},
		{"LastSequence", b.LastSequence(), int32(0)},
		{"Count", b.Count(), 3},
		{"len(Records)", len(b.Records()), 165 - 61},
	} {
		if c.got != c.want {
			t.Errorf("%s is %v, want %v", c.field, c.got, c.want)
		}
	}
	fatalIf(t, b.Validate(Limits{Strict: true}))
	got, err := DecodeAll(b, 0)
	fatalIf(t, err)
	compareRecords(t, got, []Record{
		{Offset: 1 << 40, Timestamp: 1700000000000},
		{Offset: 1<<40 + 1, Timestamp: 1700000000000 - 5, Key: []byte{}, Value: []byte{},
			Headers: []Header{{Key: "h"}, {Value: []byte{}}}},
		{Offset: 1<<40 + 2, Timestamp: 1700000000300, Key: []byte("k"), Value: bytes.Repeat([]byte("v"), 70),
			Headers: []Header{{Key: "n", Value: []byte("1")}}},
	})
}

func TestGoldenMarkerAndEmptyFlags(t *testing.T) {
	marker, empty := golden(t, goldenMarker), golden(t, goldenEmpty)
	if !marker.IsControl() || !marker.IsTransactional() || marker.LastSequence() != NoProducer {
		t.Errorf("marker: control %v, transactional %v, last sequence %d",
			marker.IsControl(), marker.IsTransactional(), marker.LastSequence())
	}
	if empty.NextOffset() != 100 || empty.LastSequence() != 26 || empty.Count() != 0 {
		t.Errorf("empty: next %d, last sequence %d, count %d",
			empty.NextOffset(), empty.LastSequence(), empty.Count())
	}
	records, err := DecodeAll(empty, 0)
	if err != nil || len(records) != 0 {
		t.Errorf("empty batch decodes to %v, %v", records, err)
	}
}
