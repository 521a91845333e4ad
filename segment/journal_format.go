package segment

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

// The journal file. All integers are big-endian.
//
//	0        header, first place   4 KiB
//	4096     header, second place  4 KiB
//	8192     half 0                half bytes
//	8192+h   half 1                half bytes
//
// The header is written to one place, synced, written to the other, synced: with one place torn or rotten the other is right.
//
// A half consists of sectors (see sector.go), and these make blocks, one behind the other from the half's start. What stands behind the
// last block of the running sequence is of an earlier lap, of an earlier generation, torn, or zero.
//
// All numbers below are frozen for format version 1.
const (
	journalVersion      = 1
	journalHeaderSize   = 4096
	journalHalvesStart  = 2 * journalHeaderSize
	journalHeaderFixed  = 64
	journalKeptMax      = (journalHeaderSize - journalHeaderFixed) / journalKeySize
	journalKeySize      = 16
	journalBlockHeader  = 56
	journalRecordHeader = 48

	journalHeaderMagic = 0x626c_6c74_6a68_6472 // "blltjhdr"
	journalBlockMagic  = 0x626c_6a62           // "bljb"

	journalFlagClean = 1 // header: nothing in the halves matters
	journalFlagSeal  = 1 // block: the sequence goes on at the start of the other half
)

// journalHeader tells which blocks of the file count.
//
//	0   xxhash64 of the 4088 bytes behind it
//	8   magic "blltjhdr"
//	16  format version (4), flags (4)
//	24  sequence of headers
//	32  generation: one life of the journal, from one open to the next
//	40  nonce of the generation
//	48  bytes of a half
//	56  number of kept keys (4), zero (4)
//	64  kept keys: shard (8), replica (8); zeros up to 4096
type journalHeader struct {
	seq        uint64
	generation uint64
	nonce      uint64 // random, so that bytes a client chose never look like a block
	half       int64
	clean      bool
	kept       []Key // when not empty, only records of these replicas count
}

// appendJournalHeader appends the header's 4096 bytes. There may be no more than journalKeptMax kept keys.
func appendJournalHeader(buf []byte, h *journalHeader) []byte {
	start := len(buf)
	buf = append(buf, make([]byte, journalHeaderSize)...)
	b := buf[start:]
	binary.BigEndian.PutUint64(b[8:], journalHeaderMagic)
	binary.BigEndian.PutUint32(b[16:], journalVersion)
	if h.clean {
		binary.BigEndian.PutUint32(b[20:], journalFlagClean)
	}
	binary.BigEndian.PutUint64(b[24:], h.seq)
	binary.BigEndian.PutUint64(b[32:], h.generation)
	binary.BigEndian.PutUint64(b[40:], h.nonce)
	binary.BigEndian.PutUint64(b[48:], uint64(h.half))
	binary.BigEndian.PutUint32(b[56:], uint32(len(h.kept)))
	for i, k := range h.kept {
		at := journalHeaderFixed + i*journalKeySize
		binary.BigEndian.PutUint64(b[at:], k.Shard)
		binary.BigEndian.PutUint64(b[at+8:], k.Replica)
	}
	binary.BigEndian.PutUint64(b, xxhash.Sum64(b[8:]))
	return buf
}

// decodeJournalHeader reads one place. It returns ok false for bytes that are no header, and an error for a header of another version
// (whose hash and magic stand where ours do).
func decodeJournalHeader(b []byte) (h journalHeader, ok bool, err error) {
	if len(b) < journalHeaderSize {
		return h, false, nil
	}
	b = b[:journalHeaderSize]
	if binary.BigEndian.Uint64(b[8:]) != journalHeaderMagic || binary.BigEndian.Uint64(b) != xxhash.Sum64(b[8:]) {
		return h, false, nil
	}
	if v := binary.BigEndian.Uint32(b[16:]); v != journalVersion {
		return h, false, fmt.Errorf("segment: journal has format version %d, this release knows %d", v, journalVersion)
	}
	h.clean = binary.BigEndian.Uint32(b[20:])&journalFlagClean != 0
	h.seq = binary.BigEndian.Uint64(b[24:])
	h.generation = binary.BigEndian.Uint64(b[32:])
	h.nonce = binary.BigEndian.Uint64(b[40:])
	h.half = int64(binary.BigEndian.Uint64(b[48:]))
	kept := binary.BigEndian.Uint32(b[56:])
	if kept > journalKeptMax || h.half < journalHalfMin || h.half > journalHalfMax || h.half%sectorSize != 0 {
		return h, false, nil
	}
	for i := range int(kept) {
		at := journalHeaderFixed + i*journalKeySize
		h.kept = append(h.kept, Key{binary.BigEndian.Uint64(b[at:]), binary.BigEndian.Uint64(b[at+8:])})
	}
	return h, true, nil
}

// journalBlock is the head of a block: one group write. A block begins a sector of its own; positions are in the sectors' payload.
//
//	0   xxhash64 of all behind it, records included
//	8   magic "bljb" (4)
//	12  length, head included (4)
//	16  generation of the journal
//	24  nonce of the generation
//	32  sequence: 1, 2, 3 … through a generation, across halves
//	40  keep: the lowest sequence whose records were not checkpointed when this block was written; at most its own
//	48  number of records (4)
//	52  flags (4): 1 = seal
//	56  records, then zeros to the end of the sector
type journalBlock struct {
	generation uint64
	nonce      uint64
	seq        uint64
	keep       uint64
	length     int
	count      int
	seal       bool
}

// finishJournalBlock fills in the head of a block: buf is room for it and then the records. It reads all fields of h but the length.
func finishJournalBlock(buf []byte, h *journalBlock) {
	binary.BigEndian.PutUint32(buf[8:], journalBlockMagic)
	binary.BigEndian.PutUint32(buf[12:], uint32(len(buf)))
	binary.BigEndian.PutUint64(buf[16:], h.generation)
	binary.BigEndian.PutUint64(buf[24:], h.nonce)
	binary.BigEndian.PutUint64(buf[32:], h.seq)
	binary.BigEndian.PutUint64(buf[40:], h.keep)
	binary.BigEndian.PutUint32(buf[48:], uint32(h.count))
	var flags uint32
	if h.seal {
		flags = journalFlagSeal
	}
	binary.BigEndian.PutUint32(buf[52:], flags)
	binary.BigEndian.PutUint64(buf, xxhash.Sum64(buf[8:]))
}

// peekJournalBlock reads a head from a block's first sector, without knowing yet whether it is one: ok says that the magic is there and
// that a block of that length fits into room bytes of sectors.
func peekJournalBlock(sector []byte, room int64) (h journalBlock, ok bool) {
	b := sector
	if len(b) < journalBlockHeader || binary.BigEndian.Uint32(b[8:]) != journalBlockMagic {
		return h, false
	}
	length := int64(binary.BigEndian.Uint32(b[12:]))
	flags := binary.BigEndian.Uint32(b[52:])
	if length < journalBlockHeader || length > room || flags > journalFlagSeal {
		return h, false
	}
	h = journalBlock{
		length:     int(length),
		generation: binary.BigEndian.Uint64(b[16:]),
		nonce:      binary.BigEndian.Uint64(b[24:]),
		seq:        binary.BigEndian.Uint64(b[32:]),
		keep:       binary.BigEndian.Uint64(b[40:]),
		count:      int(binary.BigEndian.Uint32(b[48:])),
		seal:       flags&journalFlagSeal != 0,
	}
	return h, int64(sectorsFor(h.length)) <= room
}

// validJournalBlock tells whether payload, gathered from the block's sectors, is the block with that head as it was written.
func validJournalBlock(payload []byte, h *journalBlock) bool {
	return binary.BigEndian.Uint64(payload) == xxhash.Sum64(payload[8:h.length]) && allZero(payload[h.length:])
}

// Kinds of journal records.
const (
	journalData  = 1 // bytes of a segment
	journalSlot  = 2 // an image in the slot file
	journalFence = 3 // earlier data records of the replica are void
)

// journalRecord is the head of a record.
//
//	0   kind (1), zero (3)
//	4   bytes that follow the head (4)
//	8   shard, 16 replica, 24 generation of the replica
//	32  base offset that names the segment; 0 for other kinds
//	40  position in the file; 0 for a fence
//	48  the bytes
type journalRecord struct {
	kind       uint8
	size       int
	key        Key
	generation uint64
	base       uint64
	pos        int64
}

func appendJournalRecord(buf []byte, r *journalRecord, data [][]byte) []byte {
	var b [journalRecordHeader]byte
	b[0] = r.kind
	binary.BigEndian.PutUint32(b[4:], uint32(r.size))
	binary.BigEndian.PutUint64(b[8:], r.key.Shard)
	binary.BigEndian.PutUint64(b[16:], r.key.Replica)
	binary.BigEndian.PutUint64(b[24:], r.generation)
	binary.BigEndian.PutUint64(b[32:], r.base)
	binary.BigEndian.PutUint64(b[40:], uint64(r.pos))
	buf = append(buf, b[:]...)
	for _, d := range data {
		buf = append(buf, d...)
	}
	return buf
}

// decodeJournalRecord reads the record at the start of b; its bytes are b[journalRecordHeader:][:r.size].
func decodeJournalRecord(b []byte) (r journalRecord, err error) {
	if len(b) < journalRecordHeader {
		return r, fmt.Errorf("%d bytes are no record", len(b))
	}
	r.kind = b[0]
	r.size = int(binary.BigEndian.Uint32(b[4:]))
	r.key = Key{binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])}
	r.generation = binary.BigEndian.Uint64(b[24:])
	r.base = binary.BigEndian.Uint64(b[32:])
	r.pos = int64(binary.BigEndian.Uint64(b[40:]))
	switch {
	case r.kind != journalData && r.kind != journalSlot && r.kind != journalFence:
		return r, fmt.Errorf("record of unknown kind %d", r.kind)
	case b[1] != 0 || b[2] != 0 || b[3] != 0:
		return r, fmt.Errorf("record with padding %x", b[1:4])
	case r.size > len(b)-journalRecordHeader:
		return r, fmt.Errorf("record of %d bytes in %d", r.size, len(b)-journalRecordHeader)
	case r.pos < 0 || r.base > 1<<63-1:
		return r, fmt.Errorf("record for position %d of segment %d", r.pos, r.base)
	case r.kind == journalFence && r.size != 0:
		return r, fmt.Errorf("fence with %d bytes", r.size)
	}
	return r, nil
}

const (
	journalSegmentDigits = 20
	journalSegmentSuffix = ".log"
)

// parseJournalFile reads the base offset from a segment's name.
func parseJournalFile(name string) (base uint64, ok bool) {
	if len(name) != journalSegmentDigits+len(journalSegmentSuffix) || name[journalSegmentDigits:] != journalSegmentSuffix {
		return 0, false
	}
	for i := range journalSegmentDigits {
		c := name[i]
		if c < '0' || c > '9' || base > (1<<63-1-uint64(c-'0'))/10 {
			return 0, false
		}
		base = base*10 + uint64(c-'0')
	}
	return base, true
}

// formatJournalFile is the name of the segment with that base offset.
func formatJournalFile(base uint64) string {
	return fmt.Sprintf("%020d%s", base, journalSegmentSuffix)
}
