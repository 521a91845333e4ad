package batch

import "encoding/binary"

// Murmur2 returns the 32-bit murmur2 hash of key, with the seed that Kafka's
// default partitioner uses. It is not fit for keys an adversary chooses.
func Murmur2(key []byte) uint32 {
	const (
		seed = 0x9747b28c
		m    = 0x5bd1e995
		r    = 24
	)
	h := uint32(seed) ^ uint32(len(key))
	for ; len(key) >= 4; key = key[4:] {
		k := binary.LittleEndian.Uint32(key) * m
		k ^= k >> r
		h = h*m ^ k*m
	}
	switch len(key) {
	case 3:
		h ^= uint32(key[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(key[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(key[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	return h ^ h>>15
}

// PartitionForKey returns the partition, from 0 to partitions-1, in which
// Kafka's default partitioner puts records with this key, so that all clients
// agree. It returns -1 if partitions is not positive. Records without a key
// have no such partition; a nil key is treated as an empty one.
func PartitionForKey(key []byte, partitions int) int {
	if partitions <= 0 {
		return -1
	}
	return int(int64(Murmur2(key)&0x7fffffff) % int64(partitions))
}
