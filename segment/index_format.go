package segment

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// An index file belongs to one segment. It is a cache: whatever is wrong with it,
// the log has it all. Header:
//
//	 0  magic "BILLETIX"
//	 8  format version  uint32
//	12  zero            4 bytes
//	16  base offset     int64
//	24  first index     uint64
//	32  segment id      uint64, the checksum in the segment's header frame
//	40  zero            16 bytes
//	56  xxhash64 of bytes 0 to 56
//	64
//
// Then entries of 32 bytes. There is one for the first frame, for every internal
// frame, and for a frame that starts at least the interval behind the last entry:
//
//	 0  offset, less the base offset   uint32
//	 4  Raft index, less first index   uint32
//	 8  position in the segment        uint32
//	12  term of the frame              uint32
//	16  max timestamp before it        int64, -1 for none; within the segment
//	24  check                          uint64
//	32
//
// check is xxhash64 of bytes 0 to 24, the segment id and the entry's number from
// 0, both uint64. A sealed segment's index ends with a trailer:
//
//	 0  magic "BILLETIS"
//	 8  entries          uint32
//	12  last term        uint32
//	16  last index       uint64
//	24  end offset       int64
//	32  size of the log  int64
//	40  max timestamp    int64
//	48  segment id       uint64
//	56  xxhash64 of bytes 0 to 56
//	64
const (
	indexMagic        = "BILLETIX"
	trailerMagic      = "BILLETIS"
	indexHeaderSize   = 64
	indexEntrySize    = 32
	indexTrailerSize  = 64
	indexTrailerHash  = 56
	indexEntryChecked = 24
)

// indexEntry is one entry, relative to its segment.
type indexEntry struct {
	offset, index, pos, term uint32
	maxTimestamp             int64
}

// place returns where the frame of e starts.
func (e indexEntry) place(h *header) place {
	return place{
		pos:          int64(e.pos),
		offset:       h.base + int64(e.offset),
		index:        h.firstIndex + uint64(e.index),
		term:         uint64(e.term), // that of the frame itself, see lookup.go
		maxTimestamp: e.maxTimestamp,
	}
}

func (e indexEntry) encode(b []byte, id uint64, number int) {
	binary.BigEndian.PutUint32(b, e.offset)
	binary.BigEndian.PutUint32(b[4:], e.index)
	binary.BigEndian.PutUint32(b[8:], e.pos)
	binary.BigEndian.PutUint32(b[12:], e.term)
	binary.BigEndian.PutUint64(b[16:], uint64(e.maxTimestamp))
	binary.BigEndian.PutUint64(b[24:], entryCheck(b, id, number))
}

func entryCheck(b []byte, id uint64, number int) uint64 {
	var buf [indexEntryChecked + 16]byte
	copy(buf[:], b[:indexEntryChecked])
	binary.BigEndian.PutUint64(buf[24:], id)
	binary.BigEndian.PutUint64(buf[32:], uint64(number))
	return xxhash.Sum64(buf[:])
}

// decodeIndexEntry reads entry number of the index of segment id.
func decodeIndexEntry(b []byte, id uint64, number int) (indexEntry, bool) {
	if binary.BigEndian.Uint64(b[24:]) != entryCheck(b, id, number) {
		return indexEntry{}, false
	}
	return indexEntry{
		offset:       binary.BigEndian.Uint32(b),
		index:        binary.BigEndian.Uint32(b[4:]),
		pos:          binary.BigEndian.Uint32(b[8:]),
		term:         binary.BigEndian.Uint32(b[12:]),
		maxTimestamp: int64(binary.BigEndian.Uint64(b[16:])),
	}, true
}

func encodeIndexHeader(h *header) []byte {
	b := make([]byte, indexHeaderSize)
	copy(b, indexMagic)
	binary.BigEndian.PutUint32(b[8:], FormatVersion)
	binary.BigEndian.PutUint64(b[16:], uint64(h.base))
	binary.BigEndian.PutUint64(b[24:], h.firstIndex)
	binary.BigEndian.PutUint64(b[32:], h.id)
	binary.BigEndian.PutUint64(b[56:], xxhash.Sum64(b[:56]))
	return b
}

// isIndexHeader tells whether b is the header of the index of h's segment.
func isIndexHeader(b []byte, h *header) bool {
	return string(b) == string(encodeIndexHeader(h))
}

// encodeTrailer seals an index of count entries of a segment that ends at end.
func encodeTrailer(h *header, count int, end place) []byte {
	b := make([]byte, indexTrailerSize)
	copy(b, trailerMagic)
	binary.BigEndian.PutUint32(b[8:], uint32(count))
	binary.BigEndian.PutUint32(b[12:], uint32(end.term))
	binary.BigEndian.PutUint64(b[16:], end.index-1)
	binary.BigEndian.PutUint64(b[24:], uint64(end.offset))
	binary.BigEndian.PutUint64(b[32:], uint64(end.pos))
	binary.BigEndian.PutUint64(b[40:], uint64(end.maxTimestamp))
	binary.BigEndian.PutUint64(b[48:], h.id)
	binary.BigEndian.PutUint64(b[indexTrailerHash:], xxhash.Sum64(b[:indexTrailerHash]))
	return b
}

// decodeTrailer reads the trailer of the index of h's segment.
func decodeTrailer(b []byte, h *header) (count int, end place, ok bool) {
	if len(b) != indexTrailerSize || string(b[:8]) != trailerMagic ||
		binary.BigEndian.Uint64(b[indexTrailerHash:]) != xxhash.Sum64(b[:indexTrailerHash]) ||
		binary.BigEndian.Uint64(b[48:]) != h.id {
		return 0, place{}, false
	}
	return int(binary.BigEndian.Uint32(b[8:])), place{
		term:         uint64(binary.BigEndian.Uint32(b[12:])),
		index:        binary.BigEndian.Uint64(b[16:]) + 1,
		offset:       int64(binary.BigEndian.Uint64(b[24:])),
		pos:          int64(binary.BigEndian.Uint64(b[32:])),
		maxTimestamp: int64(binary.BigEndian.Uint64(b[40:])),
	}, true
}
