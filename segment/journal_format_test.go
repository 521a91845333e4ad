package segment

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/cespare/xxhash/v2"
)

// rehash makes the hash at the start of b right again.
func rehash(b []byte) { binary.BigEndian.PutUint64(b, xxhash.Sum64(b[8:])) }

func golden(t *testing.T, what string, got []byte, want string) {
	t.Helper()
	if hex.EncodeToString(got) != want {
		t.Errorf("%s is now\n%x\nbut was frozen as\n%s", what, got, want)
	}
}

func goldenBlock() []byte {
	payload := make([]byte, journalBlockHeader)
	payload = appendJournalRecord(payload, &journalRecord{kind: journalData, size: 5, key: Key{7, 2}, generation: 3, base: 1000, pos: 4096}, [][]byte{[]byte("he"), []byte("llo")})
	payload = appendJournalRecord(payload, &journalRecord{kind: journalFence, key: Key{8, 1}}, nil)
	finishJournalBlock(payload, &journalBlock{generation: 4, nonce: 0x0123456789abcdef, seq: 6, keep: 5, count: 2})
	return payload
}

func TestJournalGolden(t *testing.T) {
	h := journalHeader{seq: 3, generation: 4, nonce: 0x0123456789abcdef, half: 1 << 20, clean: true, kept: []Key{{1, 2}, {3, 4}}}
	b := appendJournalHeader(nil, &h)
	if len(b) != 4096 || !allZero(b[96:]) {
		t.Errorf("header of %d bytes", len(b))
	}
	golden(t, "header", b[:96], goldenJournalHeader)
	payload := goldenBlock()
	golden(t, "block", payload, goldenJournalBlock)
	sectors := appendSectors(nil, payload)
	if len(sectors) != 512 || !allZero(sectors[len(payload):504]) {
		t.Errorf("block in %d bytes", len(sectors))
	}
	golden(t, "end of sector", sectors[504:], goldenSectorHash)
}

const (
	goldenJournalHeader = "91e35b6e9b1fb655626c6c746a68647200000001000000010000000000000003" +
		"00000000000000040123456789abcdef00000000001000000000000200000000" +
		"0000000000000001000000000000000200000000000000030000000000000004"
	goldenJournalBlock = "34e1fd304143339f626c6a620000009d00000000000000040123456789abcdef" +
		"0000000000000006000000000000000500000002000000000100000000000005" +
		"00000000000000070000000000000002000000000000000300000000000003e8" +
		"000000000000100068656c6c6f03000000000000000000000000000008000000" +
		"0000000001000000000000000000000000000000000000000000000000"
	goldenSectorHash = "c62f61caf171eb13"
)

func TestJournalHeaderRoundTrip(t *testing.T) {
	for _, h := range []journalHeader{
		{half: 4096},
		{seq: 1 << 40, generation: 9, nonce: 1<<64 - 1, half: 1 << 25, clean: true},
		{half: 8192, kept: make([]Key, journalKeptMax)},
	} {
		got, ok, err := decodeJournalHeader(appendJournalHeader(nil, &h))
		if !ok || err != nil || fmt.Sprint(got) != fmt.Sprint(h) {
			t.Errorf("%+v came back as %+v, %v, %v", h, got, ok, err)
		}
	}
	for _, half := range []int64{0, 512, 4097, journalHalfMax + 512} {
		if _, ok, _ := decodeJournalHeader(appendJournalHeader(nil, &journalHeader{half: half})); ok {
			t.Errorf("half of %d bytes was accepted", half)
		}
	}
}

func TestJournalFileNames(t *testing.T) {
	for _, base := range []uint64{0, 1, 1234567, 1<<63 - 1} {
		if got, ok := parseJournalFile(formatJournalFile(base)); !ok || got != base {
			t.Errorf("%d came back as %d, %v", base, got, ok)
		}
	}
	for _, name := range []string{"", "1.log", "0000000000000000000a.log", "00000000000000000001.idx", "09223372036854775808.log",
		"99999999999999999999.log", "00000000000000000001.log ", "-0000000000000000001.log"} {
		if _, ok := parseJournalFile(name); ok {
			t.Errorf("%q was accepted", name)
		}
	}
}

func TestSectors(t *testing.T) {
	for _, n := range []int{0, 1, 503, 504, 505, 1008, 5000} {
		payload := bytes.Repeat([]byte{7}, n)
		sectors := appendSectors([]byte("before"), payload)[6:]
		if len(sectors) != sectorsFor(n) {
			t.Errorf("%d bytes in %d, said %d", n, len(sectors), sectorsFor(n))
		}
		back := gatherSectors(nil, sectors)
		if !bytes.Equal(back[:n], payload) || !allZero(back[n:]) || rottenSector(sectors) != -1 {
			t.Errorf("%d bytes did not come back", n)
		}
		for i := range sectors {
			sectors[i] ^= 4
			if got := rottenSector(sectors); got != i/sectorSize*sectorSize {
				t.Errorf("flip at %d found at %d", i, got)
			}
			sectors[i] ^= 4
		}
	}
	if rottenSector(make([]byte, 1024)) != -1 {
		t.Error("zeros are rotten")
	}
}

// FuzzJournalBlock: no bytes make the readers fail otherwise than by saying no, and what they accept is written the same way again.
func FuzzJournalBlock(f *testing.F) {
	f.Add(goldenBlock())
	f.Add([]byte{})
	f.Add(bytes.Repeat([]byte{0xff}, 600))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _, _ = decodeJournalHeader(b)
		if len(b) >= journalBlockHeader { // reach what is behind the hash
			b = bytes.Clone(b)
			binary.BigEndian.PutUint32(b[8:], journalBlockMagic)
			binary.BigEndian.PutUint32(b[12:], uint32(len(b)))
			rehash(b)
		}
		sectors := appendSectors(nil, b)
		h, ok := peekJournalBlock(sectors, int64(len(sectors)))
		if !ok || len(b) < journalBlockHeader {
			return
		}
		payload := gatherSectors(nil, sectors)
		if !validJournalBlock(payload, &h) {
			t.Fatalf("block is invalid: %+v", h)
		}
		again := append(make([]byte, journalBlockHeader), payload[journalBlockHeader:h.length]...)
		finishJournalBlock(again, &h)
		if !bytes.Equal(again, payload[:h.length]) {
			t.Fatalf("head %+v\nwas %x\nis  %x", h, payload[:journalBlockHeader], again[:journalBlockHeader])
		}
		rest := payload[journalBlockHeader:h.length]
		for len(rest) > 0 {
			r, err := decodeJournalRecord(rest)
			if err != nil {
				return
			}
			size := journalRecordHeader + r.size
			record := appendJournalRecord(nil, &r, [][]byte{rest[journalRecordHeader:size]})
			if !bytes.Equal(record, rest[:size]) {
				t.Fatalf("record %+v\nwas %x\nis  %x", r, rest[:size], record)
			}
			rest = rest[size:]
		}
	})
}
