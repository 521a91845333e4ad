package batch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"
)

func TestSplitTakesBatchesOff(t *testing.T) {
	one, three := golden(t, goldenOne), golden(t, goldenThree)
	rest := append(append(bytes.Clone(one), three...), one[:30]...)
	first, rest, err := Split(rest, 200)
	if err != nil || !bytes.Equal(first, one) {
		t.Fatalf("first: %x, %v", first, err)
	}
	second, rest, err := Split(rest, 0)
	if err != nil || !bytes.Equal(second, three) || cap(second) != len(second) {
		t.Fatalf("second: %x, %v", second, err)
	}
	var truncated *TruncatedError
	third, rest, err := Split(rest, 0)
	if third != nil || len(rest) != 30 || !errors.Is(err, ErrTruncated) ||
		!errors.As(err, &truncated) || truncated.Have != 30 || truncated.Need != len(one) {
		t.Fatalf("third: %x, rest %x, %v", third, rest, err)
	}
}

func TestSplitTruncatedAtEveryLength(t *testing.T) {
	b := golden(t, goldenThree)
	for n := range b {
		_, rest, err := Split(b[:n], 0)
		var truncated *TruncatedError
		if !errors.As(err, &truncated) || truncated.Have != n || len(rest) != n {
			t.Fatalf("%d bytes: %v", n, err)
		}
		if want := len(b); n >= PrefixSize && truncated.Need != want {
			t.Fatalf("%d bytes: needs %d, want %d", n, truncated.Need, want)
		}
	}
}

func TestSplitErrors(t *testing.T) {
	withLength := func(length int32) []byte {
		b := bytes.Clone(golden(t, goldenOne))
		binary.BigEndian.PutUint32(b[LengthOffset:], uint32(length))
		return b
	}
	withMagic := func(magic byte) []byte {
		b := withLength(14 + 5) // shorter than any batch of ours
		b[MagicOffset] = magic
		return b
	}
	for _, c := range []struct {
		name string
		b    []byte
		max  int
		want error
	}{
		{"no bytes", nil, 0, ErrTruncated},
		{"negative length", withLength(-1), 0, ErrCorrupt},
		{"least length", withLength(math.MinInt32), 0, ErrCorrupt},
		{"length less than a header", withLength(48), 0, ErrCorrupt},
		{"zeros", make([]byte, 100), 0, ErrCorrupt},
		{"greatest length", withLength(math.MaxInt32), 0, ErrTooLarge},
		{"greatest size", withLength(math.MaxInt32 - 12), 0, ErrTruncated},
		{"beyond the limit", withLength(59), 70, ErrTooLarge},
		{"at the limit", withLength(59), 71, nil},
		{"beyond the limit and not there", withLength(1 << 20), 1 << 20, ErrTooLarge},
		{"magic 0", withMagic(0), 0, ErrUnsupportedMagic},
		{"magic 1", withMagic(1), 0, ErrUnsupportedMagic},
		{"magic 3", withMagic(3), 0, ErrUnsupportedMagic},
	} {
		batch, rest, err := Split(c.b, c.max)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if err != nil && (batch != nil || len(rest) != len(c.b)) {
			t.Errorf("%s: batch %x, rest %x", c.name, batch, rest)
		}
	}
}

func TestSetFieldsOutsideCRC(t *testing.T) {
	b := bytes.Clone(golden(t, goldenThree))
	v := Batch(b)
	v.SetBaseOffset(1 << 50)
	v.SetLeaderEpoch(1 << 30)
	if v.BaseOffset() != 1<<50 || v.LeaderEpoch() != 1<<30 {
		t.Fatalf("base offset %d, leader epoch %d", v.BaseOffset(), v.LeaderEpoch())
	}
	fatalIf(t, v.Validate(Limits{Strict: true}))
	records, err := DecodeAll(v, 0)
	if err != nil || records[2].Offset != 1<<50+2 {
		t.Fatalf("%+v, %v", records, err)
	}
	b[LeaderEpochOffset+4] ^= 1 // the magic byte, just after
	if err := v.CheckHeader(); !errors.Is(err, ErrUnsupportedMagic) {
		t.Fatal(err)
	}
}

func TestSetLogAppendTime(t *testing.T) {
	for _, codec := range codecs {
		records := sampleRecords(20)
		b := buildBatch(t, BuilderOptions{Codec: codec}, records)
		const ts = 1800000000000
		b.SetLogAppendTime(ts)
		if b.TimestampType() != LogAppendTime || b.MaxTimestamp() != ts || b.Codec() != codec {
			t.Fatalf("%v: type %v, max %d, codec %v", codec, b.TimestampType(), b.MaxTimestamp(), b.Codec())
		}
		fatalIf(t, b.Validate(Limits{Strict: true}))
		got, err := DecodeAll(b, 0)
		fatalIf(t, err)
		for i := range records {
			records[i].Timestamp = ts
		}
		compareRecords(t, got, records)
	}
}

func TestLastSequenceWraps(t *testing.T) {
	b := bytes.Clone(golden(t, goldenOne))
	v := Batch(b)
	for _, c := range []struct{ base, last, want int32 }{
		{-1, 5, -1},
		{0, 0, 0},
		{0, math.MaxInt32, math.MaxInt32},
		{7, 3, 10},
		{math.MaxInt32, 0, math.MaxInt32},
		{math.MaxInt32, 1, 0},
		{math.MaxInt32 - 1, 4, 2},
		{math.MaxInt32, math.MaxInt32, math.MaxInt32 - 1},
	} {
		binary.BigEndian.PutUint32(b[BaseSequenceOffset:], uint32(c.base))
		binary.BigEndian.PutUint32(b[LastOffsetDeltaOffset:], uint32(c.last))
		if got := v.LastSequence(); got != c.want {
			t.Errorf("base %d, delta %d: %d, want %d", c.base, c.last, got, c.want)
		}
	}
}

func TestErrorsSayWhere(t *testing.T) {
	b := bytes.Clone(golden(t, goldenThree))
	b[HeaderSize+7+4] = 3 // key length of the second record: -2
	err := Batch(b).Validate(Limits{SkipCRC: true})
	var at *PositionError
	if !errors.As(err, &at) || at.Record != 1 || at.Pos != 7+4 || at.BaseOffset != 1<<40 || !errors.Is(err, ErrCorrupt) {
		t.Fatalf("%v", err)
	}
	if got, want := err.Error(), "corrupt batch at base offset 1099511627776, record 1, byte 11: bad key"; got != want {
		t.Fatalf("message %q, want %q", got, want)
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{Batch(b[:70]).CheckHeader(), "truncated batch: have 70 bytes, need 165"},
		{&MaxTimestampError{Header: 5, Records: 7}, "max timestamp does not match the records: header has 5, records have 7"},
		{Batch(b).CheckCRC(), "corrupt batch at base offset 1099511627776, byte 17: CRC is 0x"},
	} {
		if c.err == nil || !strings.HasPrefix(c.err.Error(), c.want) {
			t.Errorf("message %v, want %q", c.err, c.want)
		}
	}
	cause := errors.New("cause")
	wrapped := &PositionError{Kind: ErrTooLarge, Record: -1, Pos: 8, Cause: cause}
	if !errors.Is(wrapped, cause) || !errors.Is(wrapped, ErrTooLarge) || errors.Is(wrapped, ErrCorrupt) {
		t.Fatalf("%v unwraps wrongly", wrapped)
	}
	if got, want := wrapped.Error(), "batch too large at base offset 0, byte 8: cause"; got != want {
		t.Fatalf("message %q, want %q", got, want)
	}
}
