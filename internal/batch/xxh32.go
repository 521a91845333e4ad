package batch

import (
	"encoding/binary"
	"math/bits"
)

// xxh32 returns the 32-bit xxHash, seed 0, which lz4 frames use.
func xxh32(b []byte) uint32 {
	const (
		p1 uint32 = 2654435761
		p2 uint32 = 2246822519
		p3 uint32 = 3266489917
		p4 uint32 = 668265263
		p5 uint32 = 374761393
	)
	le := binary.LittleEndian
	h := p5 + uint32(len(b))
	if len(b) >= 16 {
		size := uint32(len(b))
		p := p1 // a variable, so that the sums below may wrap
		v1, v2, v3, v4 := p+p2, p2, uint32(0), -p
		for ; len(b) >= 16; b = b[16:] {
			v1 = bits.RotateLeft32(v1+le.Uint32(b)*p2, 13) * p1
			v2 = bits.RotateLeft32(v2+le.Uint32(b[4:])*p2, 13) * p1
			v3 = bits.RotateLeft32(v3+le.Uint32(b[8:])*p2, 13) * p1
			v4 = bits.RotateLeft32(v4+le.Uint32(b[12:])*p2, 13) * p1
		}
		h = size + bits.RotateLeft32(v1, 1) + bits.RotateLeft32(v2, 7) +
			bits.RotateLeft32(v3, 12) + bits.RotateLeft32(v4, 18)
	}
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+le.Uint32(b)*p3, 17) * p4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*p5, 11) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return h ^ h>>16
}
