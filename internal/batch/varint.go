package batch

import "math/bits"

// Zig-zag base-128 integers, as in protocol buffers. The reading functions take
// the position to read at and return the position after the integer, or -1 when
// there is none. They accept -1 as a position and hand it on, so that a caller
// may read several fields and look for failure once.

// varint reads an integer of at most 32 bits at b[pos:].
func varint(b []byte, pos int) (int32, int) {
	if uint(pos) < uint(len(b)) && b[pos] < 0x80 {
		c := uint32(b[pos])
		return int32(c>>1) ^ -int32(c&1), pos + 1
	}
	return varintSlow(b, pos)
}

func varintSlow(b []byte, pos int) (int32, int) {
	v, next := uvarint(b, pos, 5)
	if v > 1<<32-1 {
		return 0, -1
	}
	u := uint32(v)
	return int32(u>>1) ^ -int32(u&1), next
}

// varlong reads an integer of at most 64 bits at b[pos:].
func varlong(b []byte, pos int) (int64, int) {
	if uint(pos) < uint(len(b)) && b[pos] < 0x80 {
		c := uint64(b[pos])
		return int64(c>>1) ^ -int64(c&1), pos + 1
	}
	u, next := uvarint(b, pos, 10)
	return int64(u>>1) ^ -int64(u&1), next
}

// uvarint reads at most maxBytes bytes of a base-128 integer.
func uvarint(b []byte, pos, maxBytes int) (uint64, int) {
	if pos < 0 || pos > len(b) {
		return 0, -1
	}
	b = b[pos:]
	if len(b) > maxBytes {
		b = b[:maxBytes]
	}
	var v uint64
	for i, c := range b {
		if c < 0x80 {
			if i == 9 && c > 1 {
				return 0, -1
			}
			return v | uint64(c)<<(7*i), pos + i + 1
		}
		v |= uint64(c&0x7f) << (7 * i)
	}
	return 0, -1
}

// varlongSize returns how many bytes putVarlong writes.
func varlongSize(v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	if u < 0x80 {
		return 1
	}
	return (bits.Len64(u) + 6) / 7
}

// putVarlong writes v at b[pos:], which must have room, and returns the
// position after it. It serves for 32-bit integers too: the code is the same.
func putVarlong(b []byte, pos int, v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	for u >= 0x80 {
		b[pos] = byte(u) | 0x80
		u >>= 7
		pos++
	}
	b[pos] = byte(u)
	return pos + 1
}
