package transport

import (
	"encoding/binary"
	"math/bits"
)

// The primes of XXH64. The algorithm is written out here because this package takes nothing from other modules, and because it needs
// the seed: one of its own for each connection and direction.
const (
	prime1 uint64 = 11400714785074694791
	prime2 uint64 = 14029467366897019727
	prime3 uint64 = 1609587929392839161
	prime4 uint64 = 9650029242287828579
	prime5 uint64 = 2870177450012600261
)

func xxRound(acc, lane uint64) uint64 { return bits.RotateLeft64(acc+lane*prime2, 31) * prime1 }

func xxMerge(h, acc uint64) uint64 { return (h^xxRound(0, acc))*prime1 + prime4 }

// sum64 is XXH64 of b.
func sum64(seed uint64, b []byte) uint64 {
	n := uint64(len(b))
	h := seed + prime5
	if n >= 32 {
		v1, v2, v3, v4 := seed+prime1+prime2, seed+prime2, seed, seed-prime1
		for len(b) >= 32 {
			v1 = xxRound(v1, binary.LittleEndian.Uint64(b[0:8:len(b)]))
			v2 = xxRound(v2, binary.LittleEndian.Uint64(b[8:16:len(b)]))
			v3 = xxRound(v3, binary.LittleEndian.Uint64(b[16:24:len(b)]))
			v4 = xxRound(v4, binary.LittleEndian.Uint64(b[24:32:len(b)]))
			b = b[32:len(b):len(b)]
		}
		h = bits.RotateLeft64(v1, 1) + bits.RotateLeft64(v2, 7) + bits.RotateLeft64(v3, 12) + bits.RotateLeft64(v4, 18)
		h = xxMerge(xxMerge(xxMerge(xxMerge(h, v1), v2), v3), v4)
	}
	h += n
	for ; len(b) >= 8; b = b[8:] {
		h = bits.RotateLeft64(h^xxRound(0, binary.LittleEndian.Uint64(b)), 27)*prime1 + prime4
	}
	if len(b) >= 4 {
		h = bits.RotateLeft64(h^uint64(binary.LittleEndian.Uint32(b))*prime1, 23)*prime2 + prime3
		b = b[4:]
	}
	for _, c := range b {
		h = bits.RotateLeft64(h^uint64(c)*prime5, 11) * prime1
	}
	h = (h ^ h>>33) * prime2
	h = (h ^ h>>29) * prime3
	return h ^ h>>32
}
