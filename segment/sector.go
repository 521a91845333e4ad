package segment

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// The journal's halves and the slot files consist of sectors, so that a torn write and rot can be told apart. A disk writes a sector as a
// whole or not at all, hence a power cut in the middle of a write leaves a mixture of new and old sectors, each of them right by itself.
// A sector that is wrong by itself was right once.
//
//	0    payload  504 bytes
//	504  xxhash64 of the payload
//
// A sector never written is all zeros. The numbers are frozen.
const (
	sectorSize    = 512
	sectorPayload = sectorSize - 8
)

// sectorsFor is how many bytes of sectors n bytes of payload take.
func sectorsFor(n int) int { return (n + sectorPayload - 1) / sectorPayload * sectorSize }

// appendSectors appends payload cut into sectors. The last one is filled up with zeros.
func appendSectors(dst, payload []byte) []byte {
	var last [sectorPayload]byte
	for len(payload) > 0 {
		p := payload[:min(sectorPayload, len(payload))]
		payload = payload[len(p):]
		if len(p) < sectorPayload {
			copy(last[:], p)
			p = last[:]
		}
		dst = append(dst, p...)
		dst = binary.BigEndian.AppendUint64(dst, xxhash.Sum64(p))
	}
	return dst
}

// gatherSectors appends the payloads of whole sectors, unchecked.
func gatherSectors(dst, sectors []byte) []byte {
	for len(sectors) >= sectorSize {
		dst = append(dst, sectors[:sectorPayload]...)
		sectors = sectors[sectorSize:]
	}
	return dst
}

// sectorWritten tells whether the sector is one that was written, and is what was written.
func sectorWritten(b []byte) bool {
	return binary.BigEndian.Uint64(b[sectorPayload:]) == xxhash.Sum64(b[:sectorPayload])
}

// rottenSector returns the position in b, which is whole sectors, of the first one that is neither what was written nor never written;
// -1 if there is none.
func rottenSector(b []byte) int {
	for at := 0; at < len(b); at += sectorSize {
		if s := b[at:][:sectorSize]; !sectorWritten(s) && !allZero(s) {
			return at
		}
	}
	return -1
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
