package segment

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/billetlog/billet/internal/batch"
)

// goldenParts are one of each structure of format version 1, as this version of
// the code writes them.
func goldenParts(tb tester) map[string][]byte {
	tb.Helper()
	h := header{identity: testIdentity, generation: 10, firstIndex: 11, base: 12, prevTerm: 13, created: 14_000_000_000}
	internal := func(kind Kind, payload string) []byte {
		b := make([]byte, internalHeaderSize, internalHeaderSize+len(payload))
		putInternal(b, kind, 15, 16, []byte(payload))
		return append(b, payload...)
	}
	parts := map[string][]byte{
		"header": h.encode(),
		"noop":   internal(KindNoOp, ""),
		"config": internal(KindConfigChange, "members"),
		"void":   internal(KindVoid, ""),
	}
	end := place{pos: 1000, offset: 20, index: 21, term: 16, maxTimestamp: 22}
	entry := make([]byte, indexEntrySize)
	indexEntry{offset: 1, index: 2, pos: 132, term: 16, maxTimestamp: 17}.encode(entry, h.id, 0)
	parts["index"] = slices.Concat(encodeIndexHeader(&h), entry, encodeTrailer(&h, 1, end))
	s := state{Checkpoint: Checkpoint{Index: 20, Term: 16, Offset: 20, Payload: []byte("fold")},
		key: testIdentity.Key, generation: 10, segment: 12, segmentID: h.id, place: end, entries: 1}
	parts["state"] = s.encode()
	return parts
}

func dump(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		n := min(len(b), 16)
		out.WriteString(hex.EncodeToString(b[:n]) + "\n")
		b = b[n:]
	}
	return out.String()
}

// TestGoldenBytes compares with what the first release of each format version
// wrote. BILLET_REWRITE=1 writes the files anew; a difference is a new version.
func TestGoldenBytes(t *testing.T) {
	doc, err := os.ReadFile("../docs/format.md")
	must(t, err)
	for name, b := range goldenParts(t) {
		path := filepath.Join("testdata", "format-1-"+name+".hex")
		if os.Getenv("BILLET_REWRITE") != "" {
			must(t, os.MkdirAll("testdata", 0o755))
			must(t, os.WriteFile(path, []byte(dump(b)), 0o644))
		}
		want, err := os.ReadFile(path)
		must(t, err)
		if string(want) != dump(b) {
			t.Errorf("%s: got\n%swant\n%s", name, dump(b), want)
		}
		if name != "index" && !strings.Contains(string(doc), dump(b)) {
			t.Errorf("docs/format.md does not show\n%s", dump(b))
		}
	}
}

func TestFormatRoundTrip(t *testing.T) {
	parts := goldenParts(t)
	h, err := decodeHeader(parts["header"])
	must(t, err)
	if again := h.encode(); !bytes.Equal(again, parts["header"]) || h.identity != testIdentity || h.created != 14_000_000_000 {
		t.Fatalf("%+v", h)
	}
	s, err := decodeState(parts["state"])
	must(t, err)
	if again := s.encode(); !bytes.Equal(again, parts["state"]) || s.place.index != 21 || string(s.Payload) != "fold" {
		t.Fatalf("%+v", s)
	}
	count, end, ok := decodeTrailer(parts["index"][96:], &h)
	if !ok || count != 1 || end.index != 21 || end.pos != 1000 {
		t.Fatalf("%d %+v %v", count, end, ok)
	}
	e, ok := decodeIndexEntry(parts["index"][64:], h.id, 0)
	if p := e.place(&h); !ok || p.offset != 13 || p.index != 13 || p.pos != 132 || p.maxTimestamp != 17 {
		t.Fatalf("%+v %v", p, ok)
	}
	// An entry is good in its own place only.
	if _, ok := decodeIndexEntry(parts["index"][64:], h.id, 1); ok {
		t.Fatal("an entry of another number is taken")
	}
	if _, ok := decodeIndexEntry(parts["index"][64:], h.id+1, 0); ok {
		t.Fatal("an entry of another segment is taken")
	}
}

// TestEveryPartByteFlipped checks that each structure notices each change.
func TestEveryPartByteFlipped(t *testing.T) {
	parts := goldenParts(t)
	h, err := decodeHeader(parts["header"])
	must(t, err)
	for name, whole := range parts {
		for i := range whole {
			b := bytes.Clone(whole)
			b[i] ^= 0x10
			taken := false
			switch name {
			case "header":
				_, err := decodeHeader(b)
				taken = err == nil
			case "state":
				_, err := decodeState(b)
				taken = err == nil
			case "index":
				_, inEntry := decodeIndexEntry(b[64:], h.id, 0)
				_, _, inTrailer := decodeTrailer(b[96:], &h)
				taken = isIndexHeader(b[:64], &h) && inEntry && inTrailer
			default:
				f, err := decodeHead(b, maxFrameSize)
				taken = err == nil && f.size <= len(b) && f.checkBody(b[:f.size]) == nil
			}
			if taken {
				t.Errorf("%s with byte %d changed is taken", name, i)
			}
		}
	}
}

func TestDecodeHeadBounds(t *testing.T) {
	good := makeBatch(t, 5, 3, 2, 20, 0)
	set := func(pos int, b ...byte) []byte {
		c := bytes.Clone(good)
		copy(c[pos:], b)
		return c
	}
	for name, b := range map[string][]byte{
		"nothing":          nil,
		"short":            good[:27],
		"cut head":         good[:60],
		"length 0":         set(8, 0, 0, 0, 0),
		"length -1":        set(8, 0xff, 0xff, 0xff, 0xff),
		"length too short": set(8, 0, 0, 0, 48),
		"length too long":  set(8, 0, 1, 0, 0),
		"negative base":    set(0, 0x80),
		"negative term":    set(12, 0x80),
		"magic":            set(16, 3),
		"delta":            set(23, 0xff),
		"overflow":         set(0, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff),
		"internal kind 0":  set(16, internalMagic, 0, 0, 0),
		"internal kind 1":  set(16, internalMagic, 1, 0, 0),
		"internal kind 6":  set(16, internalMagic, 6, 0, 0),
		"internal zero":    set(16, internalMagic, 2, 0, 1),
	} {
		if f, err := decodeHead(b, 1<<16); err == nil {
			t.Errorf("%s: taken as %+v", name, f)
		}
	}
	if f, err := decodeHead(good, 1<<16); err != nil || f.next != 7 || f.size != len(good) || f.term != 3 {
		t.Errorf("%+v, %v", f, err)
	}
}

// TestHeadKnowsBatch compares the constants of two packages.
func TestHeadKnowsBatch(t *testing.T) {
	if batchMagic != batch.Magic || lengthOmits != batch.PrefixSize || prefixSize != batch.MagicOffset+1 || maxFrameSize > math.MaxInt32 {
		t.Fatal("constants differ")
	}
}

func FuzzFrame(f *testing.F) {
	for _, b := range goldenParts(f) {
		f.Add(b)
	}
	f.Add([]byte(makeBatch(f, 5, 3, 2, 20, 0)))
	f.Fuzz(func(t *testing.T, b []byte) {
		fr, err := decodeHead(b, maxFrameSize)
		if err != nil {
			return
		}
		if fr.size < minFrameSize || fr.base < 0 || fr.next < fr.base || fr.term > math.MaxInt32 || fr.kind < KindData || fr.kind > KindHeader {
			t.Fatalf("%+v", fr)
		}
		if fr.size > len(b) || fr.checkBody(b[:fr.size]) != nil || fr.kind == KindData {
			return
		}
		again := make([]byte, internalHeaderSize)
		putInternal(again, fr.kind, fr.base, fr.term, b[internalHeaderSize:fr.size])
		if !bytes.Equal(again, b[:internalHeaderSize]) {
			t.Fatal("another encoding of the same frame")
		}
	})
}

func FuzzState(f *testing.F) {
	f.Add(goldenParts(f)["state"])
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := decodeState(b)
		if err == nil && !bytes.Equal(s.encode(), b) {
			t.Fatal("another encoding of the same state")
		}
	})
}

// FuzzIndex opens a sound log with any bytes for an index.
func FuzzIndex(f *testing.F) {
	content, want := closedLog(f, false)
	for name, b := range content {
		if strings.HasSuffix(name, indexSuffix) {
			f.Add(b, false)
			f.Add(b, true)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, active bool) {
		name := fileName(0, indexSuffix)
		if active {
			name = fileName(want.end()-1, indexSuffix)
		}
		damaged(t, content.with(name, b), name, want, want.last())
	})
}

// repairSums gives what looks like frames in b right checksums, and stops where
// nothing does.
func repairSums(b []byte) {
	for {
		f, err := decodeHead(b, len(b))
		if err != nil {
			return
		}
		if f.kind == KindData {
			sum := crc32.Checksum(b[batch.AttributesOffset:f.size], crc32.MakeTable(crc32.Castagnoli))
			binary.BigEndian.PutUint32(b[batch.CRCOffset:], sum)
		} else {
			binary.BigEndian.PutUint64(b[20:], internalHash(b[:f.size]))
		}
		b = b[f.size:]
	}
}

// FuzzOpen opens any bytes behind a sound header, with or without checksums made
// right.
func FuzzOpen(f *testing.F) {
	content, _ := closedLog(f, false)
	name := fileName(0, logSuffix)
	b := content[name]
	f.Add(b[segmentHeaderSize:], false, true)
	f.Add(b[segmentHeaderSize:len(b)-1], true, false)
	f.Fuzz(func(t *testing.T, tail []byte, lossy, repair bool) {
		tail = bytes.Clone(tail)
		if repair {
			repairSums(tail)
		}
		o := logOptions(files{name: append(bytes.Clone(b[:segmentHeaderSize]), tail...)}.write(t, "/log"))
		o.LossyTail, o.MaxUnsyncedBytes = lossy, 100
		l, _, err := Open(o, OpenHints{})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		defer l.Close(false)
		must(t, l.Verify(t.Context(), nil))
		entries, err := l.Entries(nil, 1, l.LastIndex()+1, 1<<30)
		must(t, err)
		c := l.NewCursor()
		defer c.Close()
		records, err := c.Read(nil, 0, l.EndOffset(), 1<<20)
		must(t, err)
		for _, e := range entries {
			fr, err := l.storedFrame(e.Index)
			if err != nil || fr.Kind == KindData && !bytes.HasPrefix(records, e.Data) {
				t.Fatalf("entry %d: %+v, %v", e.Index, fr, err)
			}
			if fr.Kind == KindData {
				records = records[fr.Size:]
			}
		}
		if len(records) > 0 {
			t.Fatalf("%d bytes that are no entries", len(records))
		}
		f := &feeder{tb: t, index: l.LastIndex() + 1, term: l.LastTerm(), offset: l.EndOffset()}
		if f.term < math.MaxInt32 && f.offset < math.MaxInt64-1 {
			mustAppend(t, l, f.noop(f.term+1), f.data(1, 10))
		}
	})
}
