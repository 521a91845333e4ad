package transport

import "github.com/cespare/xxhash/v2"

// sum64 is xxhash64 of b. Each connection has a seed of its own for each direction.
func sum64(seed uint64, b []byte) uint64 {
	if seed == 0 {
		return xxhash.Sum64(b)
	}
	var d xxhash.Digest
	d.ResetWithSeed(seed)
	_, _ = d.Write(b) // never fails
	return d.Sum64()
}
