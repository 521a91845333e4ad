package vfs

import "math/bits"

// sectorSize is the unit in which Mem loses and keeps data: what a disk writes
// as a whole or not at all.
const sectorSize = 512

// sectorSet is a set of sector numbers, one bit each.
type sectorSet []uint64

// sectorsIn returns the numbers of the first sector that touches [off, end) and
// of the first one after it.
func sectorsIn(off, end int64) (first, last int) {
	return int(off / sectorSize), int((end + sectorSize - 1) / sectorSize)
}

func (s sectorSet) has(i int) bool {
	return i/64 < len(s) && s[i/64]&(1<<(i%64)) != 0
}

func (s *sectorSet) add(i int) {
	if missing := i/64 + 1 - len(*s); missing > 0 {
		*s = append(*s, make([]uint64, missing)...)
	}
	(*s)[i/64] |= 1 << (i % 64)
}

func (s sectorSet) remove(i int) {
	if i/64 < len(s) {
		s[i/64] &^= 1 << (i % 64)
	}
}

func (s sectorSet) addAll(other sectorSet) sectorSet {
	for i := range other.all {
		s.add(i)
	}
	return s
}

// cut removes all from number i on.
func (s *sectorSet) cut(i int) {
	words := (i + 63) / 64
	if words > len(*s) {
		return
	}
	*s = (*s)[:words]
	if i%64 != 0 {
		(*s)[words-1] &= 1<<(i%64) - 1
	}
}

func (s sectorSet) len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// all ranges over the numbers in ascending order.
func (s sectorSet) all(yield func(int) bool) {
	for w, word := range s {
		for ; word != 0; word &= word - 1 {
			if !yield(w*64 + bits.TrailingZeros64(word)) {
				return
			}
		}
	}
}
