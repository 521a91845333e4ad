package segment

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// A state file holds one checkpoint:
//
//	  0  magic "BILLETST"
//	  8  format version   uint32
//	 12  term             uint32
//	 16  Raft index       uint64
//	 24  next offset      int64, also the file's name
//	 32  shard            uint64
//	 40  replica          uint64
//	 48  generation       uint64
//	 56  base offset of the segment  int64
//	 64  segment id       uint64
//	 72  position in the segment, behind the entry  int64
//	 80  max timestamp in the segment before there  int64
//	 88  index entries before there  uint32
//	 92  payload length   uint32
//	 96  xxhash64 of all else  uint64
//	104  payload
const (
	stateMagic      = "BILLETST"
	stateHashAt     = 96
	stateHeaderSize = 104
)

// state is a checkpoint with its place in the log.
type state struct {
	Checkpoint
	key        Key
	generation uint64
	segment    int64  // base offset
	segmentID  uint64 // checksum of its header
	place      place  // behind the entry
	entries    int    // of the segment's index, before place
}

func (s *state) encode() []byte {
	b := make([]byte, stateHeaderSize, stateHeaderSize+len(s.Payload))
	copy(b, stateMagic)
	binary.BigEndian.PutUint32(b[8:], FormatVersion)
	binary.BigEndian.PutUint32(b[12:], uint32(s.Term))
	binary.BigEndian.PutUint64(b[16:], s.Index)
	binary.BigEndian.PutUint64(b[24:], uint64(s.Offset))
	binary.BigEndian.PutUint64(b[32:], s.key.Shard)
	binary.BigEndian.PutUint64(b[40:], s.key.Replica)
	binary.BigEndian.PutUint64(b[48:], s.generation)
	binary.BigEndian.PutUint64(b[56:], uint64(s.segment))
	binary.BigEndian.PutUint64(b[64:], s.segmentID)
	binary.BigEndian.PutUint64(b[72:], uint64(s.place.pos))
	binary.BigEndian.PutUint64(b[80:], uint64(s.place.maxTimestamp))
	binary.BigEndian.PutUint32(b[88:], uint32(s.entries))
	binary.BigEndian.PutUint32(b[92:], uint32(len(s.Payload)))
	b = append(b, s.Payload...)
	binary.BigEndian.PutUint64(b[stateHashAt:], stateHash(b))
	return b
}

func stateHash(b []byte) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(b[:stateHashAt])
	_, _ = d.Write(b[stateHeaderSize:])
	return d.Sum64()
}

// decodeState reads a state file. The payload aliases b.
func decodeState(b []byte) (state, error) {
	if len(b) < stateHeaderSize || string(b[:8]) != stateMagic {
		return state{}, errFrame("not a state file")
	}
	if v := binary.BigEndian.Uint32(b[8:]); v != FormatVersion {
		return state{}, frameErrorf("format version %d, known is %d", v, FormatVersion)
	}
	if binary.BigEndian.Uint64(b[stateHashAt:]) != stateHash(b) {
		return state{}, errFrame("checksum of the state file is wrong")
	}
	if n := int64(binary.BigEndian.Uint32(b[92:])); n != int64(len(b)-stateHeaderSize) {
		return state{}, frameErrorf("payload of %d bytes", n)
	}
	s := state{
		Checkpoint: Checkpoint{
			Term:    uint64(binary.BigEndian.Uint32(b[12:])),
			Index:   binary.BigEndian.Uint64(b[16:]),
			Offset:  int64(binary.BigEndian.Uint64(b[24:])),
			Payload: b[stateHeaderSize:],
		},
		key:        Key{Shard: binary.BigEndian.Uint64(b[32:]), Replica: binary.BigEndian.Uint64(b[40:])},
		generation: binary.BigEndian.Uint64(b[48:]),
		segment:    int64(binary.BigEndian.Uint64(b[56:])),
		segmentID:  binary.BigEndian.Uint64(b[64:]),
		entries:    int(binary.BigEndian.Uint32(b[88:])),
	}
	s.place = place{
		pos:          int64(binary.BigEndian.Uint64(b[72:])),
		maxTimestamp: int64(binary.BigEndian.Uint64(b[80:])),
		offset:       s.Offset,
		index:        s.Index + 1,
		term:         s.Term,
	}
	return s, nil
}
