package replication

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/billetlog/billet/segment"
)

// wireCase is one kind of message: a sample, its golden bytes, and how it is read and written.
type wireCase struct {
	name   string
	golden string
	sample any
	write  func(any) []byte
	read   func([]byte) (any, error)
}

func wireCases() []wireCase {
	key := wirePartition{[16]byte{1, 2, 15: 16}, 3}
	leader := wireLeader{4, 5, replicaID(4, 6)}
	at := standing{start: 1, hw: 2, end: 3, size: 4, unsynced: 5, epoch: 6}
	result := wireResult{code: 2, text: "no", leader: leader}
	id := "\x01\x02\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x03"
	led := "\x00\x00\x00\x04\x00\x00\x00\x05\x00\x00\x00\x06\x00\x00\x00\x04"
	stands := "\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x03" +
		"\x00\x00\x00\x00\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x06"
	return []wireCase{
		{"announcement", "\x01\x00\x00\x00\x01" + id + "\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00\x00\x05\x00\x00\x00\x06\x00\x00\x00\x04" +
			"\x00\x00\x00\x00\x00\x00\x00\x08\x01\x01\x00\x00\x00\x00\x00\x00\x00\x07",
			announcement{true, []announced{{key, 9, 5, replicaID(4, 6), 8, true, []uint64{7}}}},
			func(v any) []byte { a := v.(announcement); return a.encode() },
			func(b []byte) (any, error) { return anyOf(decodeAnnouncement(b)) }},
		{"append", id + "\xff\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00\x03batch",
			appendRequest{key, AcksAll, 1, 2, 3, []byte("batch")},
			func(v any) []byte { a := v.(appendRequest); return a.encode(nil) },
			func(b []byte) (any, error) { return anyOf(decodeAppend(b)) }},
		{"append answer", "\x00\x02\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x08" + led + "no",
			appendAnswer{result, 7, 8},
			func(v any) []byte { a := v.(appendAnswer); return a.encode() },
			func(b []byte) (any, error) { return anyOf(decodeAppendAnswer(b)) }},
		{"fetch", id + "\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00\x04",
			fetchRequest{key, 1, 2, 3 * time.Millisecond, 4},
			func(v any) []byte { f := v.(fetchRequest); return f.encode() },
			func(b []byte) (any, error) { return anyOf(decodeFetch(b)) }},
		{"fetch answer", "\x00\x02" + led + stands + "\x00\x02nodata",
			fetchAnswer{result, at, []byte("data")},
			func(v any) []byte { a := v.(fetchAnswer); return append(a.appendTo(nil), a.data...) },
			func(b []byte) (any, error) { return anyOf(decodeFetchAnswer(b)) }},
		{"offsets", id + "\x01\x00\x00\x00\x00\x00\x00\x00\x05",
			offsetsRequest{key, true, 5},
			func(v any) []byte { o := v.(offsetsRequest); return o.encode() },
			func(b []byte) (any, error) { return anyOf(decodeOffsets(b)) }},
		{"offsets answer", "\x00\x02" + led + stands + "\x01\x00\x00\x00\x00\x00\x00\x00\x07\x00\x00\x00\x00\x00\x00\x00\x08\x00\x02no",
			offsetsAnswer{result, at, true, 7, 8},
			func(v any) []byte { a := v.(offsetsAnswer); return a.encode() },
			func(b []byte) (any, error) { return anyOf(decodeOffsetsAnswer(b)) }},
		{"watch", "\x00\x00\x00\x09\x00\x00\x00\x01" + id + "\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x02\x00\x00\x00\x06",
			watchRequest{9 * time.Millisecond, []watchEntry{{key, standing{start: 1, hw: 2, epoch: 6}}}},
			func(v any) []byte { w := v.(watchRequest); return w.encode() },
			func(b []byte) (any, error) { return anyOf(decodeWatch(b)) }},
		{"watch answer", "\x00\x00\x00\x01\x00\x00\x00\x01\x00\x02" + led + stands,
			watchAnswer{[]watchNews{{1, 2, leader, at}}},
			func(v any) []byte { w := v.(watchAnswer); return w.encode() },
			func(b []byte) (any, error) { return anyOf(decodeWatchAnswer(b, 2)) }},
	}
}

func anyOf[T any](v T, err error) (any, error) { return v, err }

// The layouts are frozen: nodes of different builds speak to each other.
func TestWireGolden(t *testing.T) {
	for _, c := range wireCases() {
		b := c.write(c.sample)
		if string(b) != c.golden {
			t.Errorf("%s is written as %q, frozen is %q", c.name, b, c.golden)
		}
		v, err := c.read(b)
		if err != nil || !reflect.DeepEqual(v, c.sample) {
			t.Errorf("%s is read as %+v, %v, want %+v", c.name, v, err, c.sample)
		}
		for n := range len(b) {
			if _, err := c.read(b[:n]); err != nil && !errors.Is(err, errWire) {
				t.Errorf("%s cut at %d: %v", c.name, n, err)
			}
		}
	}
}

func FuzzWire(f *testing.F) {
	for i, c := range wireCases() {
		f.Add(byte(i), c.write(c.sample))
	}
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		c := wireCases()[int(kind)%len(wireCases())]
		v, err := c.read(b)
		if err != nil {
			return
		}
		again, err := c.read(c.write(v))
		if err != nil || !reflect.DeepEqual(v, again) && !bytes.Equal(c.write(v), c.write(again)) {
			t.Errorf("%s: %+v is read back as %+v, %v", c.name, v, again, err)
		}
	})
}

func TestWireResult(t *testing.T) {
	for _, kind := range []error{ErrNotLeader, ErrAmbiguous, ErrTooLarge, segment.ErrCompacted, segment.ErrUnavailable} {
		r := resultOf(errors.Join(errors.New("some\nlines"), kind))
		if err := r.err(3); !errors.Is(err, kind) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v came as %q", kind, err)
		}
	}
	if r := resultOf(errors.New(strings.Repeat("é", wireTextMax))); r.code != codeOther || len(r.text) > wireTextMax || r.err(1) == nil {
		t.Errorf("code %d, %d bytes", r.code, len(r.text))
	}
	if r := resultOf(nil); r.err(1) != nil {
		t.Error("no error came as one")
	}
}
