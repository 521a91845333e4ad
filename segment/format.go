package segment

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/cespare/xxhash/v2"

	"github.com/billetlog/billet/internal/batch"
)

// FormatVersion is the version of the files this package writes. A file of a
// later version is refused. Versions only go up:
//
//	1  the first one
const FormatVersion = 1

// Every frame begins with the 17 bytes of a Kafka record batch, big endian:
//
//	 0          8      12     16 17
//	+----------+------+------+--+- - -
//	| base     |length| term |mg|
//	| offset   |      |      |  |
//	+----------+------+------+--+- - -
//
// length counts the bytes after itself. Magic 2 is a record batch, and term is
// its leader epoch. Magic 0x62 is an internal frame, which goes on:
//
//	17   18  20         28
//	+----+---+----------+--------- - -
//	|kind| 0 | xxhash64 | payload
//	+----+---+----------+--------- - -
//
// The hash is over bytes 0 to 20 and the payload. The base offset of an internal
// frame is the log's end offset at that place; it takes no offset.
const (
	batchMagic    = 2    // frozen
	internalMagic = 0x62 // frozen

	prefixSize         = 17 // up to and including the magic
	lengthOmits        = 12 // bytes a length field does not count
	internalHeaderSize = 28
	minFrameSize       = internalHeaderSize
	maxFrameSize       = math.MaxInt32 - 1<<20
)

// frame is what the head of one frame says.
type frame struct {
	kind         Kind
	size         int // bytes in all
	base         int64
	next         int64 // the end offset behind it
	term         uint64
	maxTimestamp int64 // noTimestamp for internal frames
}

// noTimestamp stands where there is no record with a timestamp.
const noTimestamp = int64(-1)

// headSize is how many bytes decodeHead wants, unless the file ends before.
const headSize = batch.HeaderSize

// errFrame is the reason why bytes are no frame.
type errFrame string

func (e errFrame) Error() string { return string(e) }

func frameErrorf(format string, args ...any) error {
	return errFrame(fmt.Sprintf(format, args...))
}

// decodeHead reads the head of the frame that b starts with. b is headSize bytes,
// or what is left of the file. Nothing beyond the head is looked at.
func decodeHead(b []byte, maxSize int) (frame, error) {
	if len(b) < minFrameSize {
		return frame{}, frameErrorf("%d bytes where a frame must start", len(b))
	}
	length := int64(int32(binary.BigEndian.Uint32(b[8:])))
	f := frame{
		size:         int(length + lengthOmits),
		base:         int64(binary.BigEndian.Uint64(b)),
		term:         uint64(binary.BigEndian.Uint32(b[12:])),
		maxTimestamp: noTimestamp,
	}
	f.next = f.base
	if length < minFrameSize-lengthOmits || int64(f.size) > int64(maxSize) {
		return f, frameErrorf("frame length %d", length)
	}
	if f.base < 0 || f.term > math.MaxInt32 {
		return f, frameErrorf("base offset %d, term %d", f.base, int32(f.term))
	}
	switch b[16] {
	case internalMagic:
		f.kind = Kind(b[17])
		if f.kind < KindNoOp || f.kind > KindHeader || b[18] != 0 || b[19] != 0 {
			return f, frameErrorf("internal frame of kind %d", b[17])
		}
		return f, nil
	case batchMagic:
		f.kind = KindData
		return f, f.decodeBatch(b)
	}
	return f, frameErrorf("magic %#x", b[16])
}

// decodeBatch reads what only a record batch has. What it accepts decides which
// batches take effect, so it must not change.
func (f *frame) decodeBatch(b []byte) error {
	if f.size < batch.HeaderSize || len(b) < batch.HeaderSize {
		return frameErrorf("record batch of %d bytes", f.size)
	}
	view := batch.Batch(b)
	last := int64(view.LastOffsetDelta())
	if last < 0 || f.base >= math.MaxInt64-last {
		return frameErrorf("last offset delta %d of base offset %d", last, f.base)
	}
	f.next = f.base + last + 1
	f.maxTimestamp = max(view.MaxTimestamp(), noTimestamp)
	return nil
}

// checkBody verifies the checksum of a whole frame, whose head was decoded.
func (f *frame) checkBody(b []byte) error {
	if f.kind == KindData {
		if batch.Batch(b).CheckCRC() != nil {
			return frameErrorf("CRC of the record batch at offset %d is wrong", f.base)
		}
		return nil
	}
	if got := internalHash(b); got != binary.BigEndian.Uint64(b[20:]) {
		return frameErrorf("checksum of the internal frame is wrong")
	}
	return nil
}

// internalHash is the checksum of a whole internal frame.
func internalHash(b []byte) uint64 {
	if len(b) == internalHeaderSize {
		return xxhash.Sum64(b[:20])
	}
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(b[:20])
	_, _ = d.Write(b[internalHeaderSize:])
	return d.Sum64()
}

// putInternal fills the header of an internal frame into b[:28]; the payload
// follows it.
func putInternal(b []byte, kind Kind, base int64, term uint64, payload []byte) {
	binary.BigEndian.PutUint64(b, uint64(base))
	binary.BigEndian.PutUint32(b[8:], uint32(internalHeaderSize+len(payload)-lengthOmits))
	binary.BigEndian.PutUint32(b[12:], uint32(term))
	b[16], b[17], b[18], b[19] = internalMagic, byte(kind), 0, 0
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(b[:20])
	_, _ = d.Write(payload)
	binary.BigEndian.PutUint64(b[20:], d.Sum64())
}

// The payload of a header frame, the first frame of every segment:
//
//	  0  magic "BILLETLG"
//	  8  format version    uint32
//	 12  partition         int32
//	 16  cluster id        16 bytes
//	 32  topic id          16 bytes
//	 48  shard             uint64
//	 56  replica           uint64
//	 64  generation        uint64
//	 72  first Raft index  uint64
//	 80  base offset       int64
//	 88  term before       uint64
//	 96  creation time     int64, nanoseconds since the Unix epoch
//	104
//
// The term in the frame's prefix is the term before as well.
const (
	headerMagic       = "BILLETLG"
	headerPayloadSize = 104
	// segmentHeaderSize is where the first entry of a segment starts.
	segmentHeaderSize = internalHeaderSize + headerPayloadSize
)

// header is the first frame of a segment.
type header struct {
	identity   Identity
	generation uint64
	firstIndex uint64 // Raft index of the first frame behind it
	base       int64
	prevTerm   uint64 // term of the entry before firstIndex
	created    int64  // nanoseconds
	id         uint64 // its checksum: binds the index to this life of the file
}

func (h *header) encode() []byte {
	b := make([]byte, segmentHeaderSize)
	p := b[internalHeaderSize:]
	copy(p, headerMagic)
	binary.BigEndian.PutUint32(p[8:], FormatVersion)
	binary.BigEndian.PutUint32(p[12:], uint32(h.identity.Partition))
	copy(p[16:], h.identity.Cluster[:])
	copy(p[32:], h.identity.Topic[:])
	binary.BigEndian.PutUint64(p[48:], h.identity.Key.Shard)
	binary.BigEndian.PutUint64(p[56:], h.identity.Key.Replica)
	binary.BigEndian.PutUint64(p[64:], h.generation)
	binary.BigEndian.PutUint64(p[72:], h.firstIndex)
	binary.BigEndian.PutUint64(p[80:], uint64(h.base))
	binary.BigEndian.PutUint64(p[88:], h.prevTerm)
	binary.BigEndian.PutUint64(p[96:], uint64(h.created))
	putInternal(b, KindHeader, h.base, h.prevTerm, p)
	h.id = binary.BigEndian.Uint64(b[20:])
	return b
}

// decodeHeader reads the header frame b starts with.
func decodeHeader(b []byte) (header, error) {
	f, err := decodeHead(b, maxFrameSize)
	if err != nil {
		return header{}, err
	}
	if f.kind != KindHeader {
		return header{}, frameErrorf("kind %d where the header must be", f.kind)
	}
	if f.size > len(b) {
		return header{}, frameErrorf("header of %d bytes", f.size)
	}
	if err := f.checkBody(b[:f.size]); err != nil {
		return header{}, err
	}
	p := b[internalHeaderSize:f.size]
	if len(p) < 12 || string(p[:8]) != headerMagic {
		return header{}, frameErrorf("not the header of a segment")
	}
	if v := binary.BigEndian.Uint32(p[8:]); v != FormatVersion {
		return header{}, frameErrorf("format version %d, known is %d", v, FormatVersion)
	}
	if len(p) != headerPayloadSize {
		return header{}, frameErrorf("header payload of %d bytes", len(p))
	}
	h := header{
		generation: binary.BigEndian.Uint64(p[64:]),
		firstIndex: binary.BigEndian.Uint64(p[72:]),
		base:       int64(binary.BigEndian.Uint64(p[80:])),
		prevTerm:   binary.BigEndian.Uint64(p[88:]),
		created:    int64(binary.BigEndian.Uint64(p[96:])),
		id:         binary.BigEndian.Uint64(b[20:]),
	}
	h.identity.Partition = int32(binary.BigEndian.Uint32(p[12:]))
	copy(h.identity.Cluster[:], p[16:])
	copy(h.identity.Topic[:], p[32:])
	h.identity.Key.Shard = binary.BigEndian.Uint64(p[48:])
	h.identity.Key.Replica = binary.BigEndian.Uint64(p[56:])
	if h.base != f.base || h.prevTerm != f.term || h.firstIndex == 0 {
		return header{}, frameErrorf("header contradicts itself")
	}
	return h, nil
}
