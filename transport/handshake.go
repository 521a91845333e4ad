package transport

import (
	"encoding/binary"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The handshake, all numbers big-endian. The sums are xxhash64 with seed 0. Magic, the places of versions and the reason of a refusal
// are frozen for all versions; the rest is for protocol version 1.
//
// Hello, from the side that dialled, 64 bytes:
//
//	 0  8  magic "billetTP"
//	 8  2  lowest version it speaks
//	10  2  highest version
//	12  1  kind of stream; the values are frozen
//	13  3  zero
//	16 16  cluster id; for a raw stream not looked at
//	32  4  sender's node id, above 0
//	36  4  node id of the receiver that is meant, above 0; for a raw stream 0: whoever is there
//	40  8  sender's incarnation
//	48  8  nonce
//	56  8  sum of bytes 0 to 56
//
// Answer, 64 bytes and the reason:
//
//	 0  8  magic
//	 8  2  version chosen, 0 if refused
//	10  2  0 for welcome, else RefusalCode
//	12  4  node id of who answers
//	16 16  cluster id, zero if it belongs to none yet
//	32  8  its incarnation
//	40  8  nonce
//	48  2  length of the reason, at most 256; 0 for welcome
//	50  6  zero
//	56  8  sum of bytes 0 to 56 and the reason
//	64     reason, UTF-8
const (
	helloSize  = 64
	answerSize = 64
	reasonMax  = 256

	handshakeMagic = "billetTP"
)

// The protocol versions that this package speaks.
const (
	VersionMin uint16 = 1
	VersionMax uint16 = 1
)

// ClusterID tells clusters apart.
type ClusterID [16]byte

// Kind is what a connection is for. The values are frozen.
type Kind uint8

// The kinds of streams.
const (
	KindBatches  Kind = 1
	KindRequests Kind = 2
	KindPull     Kind = 3
	KindStream   Kind = 4
	KindUrgent   Kind = 5
)

func (k Kind) String() string {
	switch k {
	case KindBatches:
		return "batches"
	case KindRequests:
		return "requests"
	case KindPull:
		return "pull"
	case KindStream:
		return "stream"
	case KindUrgent:
		return "urgent batches"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

type hello struct {
	versionMin, versionMax uint16
	kind                   Kind
	cluster                ClusterID
	sender, receiver       int32
	incarnation            uint64
	nonce                  uint64
}

func (h hello) encode() []byte {
	b := make([]byte, helloSize)
	copy(b, handshakeMagic)
	binary.BigEndian.PutUint16(b[8:], h.versionMin)
	binary.BigEndian.PutUint16(b[10:], h.versionMax)
	b[12] = byte(h.kind)
	copy(b[16:32], h.cluster[:])
	binary.BigEndian.PutUint32(b[32:], uint32(h.sender))
	binary.BigEndian.PutUint32(b[36:], uint32(h.receiver))
	binary.BigEndian.PutUint64(b[40:], h.incarnation)
	binary.BigEndian.PutUint64(b[48:], h.nonce)
	binary.BigEndian.PutUint64(b[56:], sum64(0, b[:56]))
	return b
}

// decodeHello reads what encode wrote. Versions are not judged here, and fields of a version that is not ours may mean something else:
// the caller looks at versions first.
func decodeHello(b []byte) (hello, error) {
	if len(b) != helloSize || string(b[:8]) != handshakeMagic {
		return hello{}, fmt.Errorf("%w: magic", ErrBadHandshake)
	}
	if binary.BigEndian.Uint64(b[56:]) != sum64(0, b[:56]) {
		return hello{}, fmt.Errorf("%w: checksum", ErrBadHandshake)
	}
	h := hello{
		versionMin:  binary.BigEndian.Uint16(b[8:]),
		versionMax:  binary.BigEndian.Uint16(b[10:]),
		kind:        Kind(b[12]),
		cluster:     ClusterID(b[16:32]),
		sender:      int32(binary.BigEndian.Uint32(b[32:])),
		receiver:    int32(binary.BigEndian.Uint32(b[36:])),
		incarnation: binary.BigEndian.Uint64(b[40:]),
		nonce:       binary.BigEndian.Uint64(b[48:]),
	}
	switch {
	case h.versionMin == 0 || h.versionMin > h.versionMax:
		return hello{}, fmt.Errorf("%w: versions %d to %d", ErrBadHandshake, h.versionMin, h.versionMax)
	case h.speaks(VersionMin, VersionMax) && b[13]|b[14]|b[15] != 0:
		return hello{}, fmt.Errorf("%w: padding is not zero", ErrBadHandshake)
	case h.speaks(VersionMin, VersionMax) && (h.sender < 1 || h.receiver < 0 || (h.receiver == 0) != (h.kind == KindStream)):
		return hello{}, fmt.Errorf("%w: node ids %d and %d", ErrBadHandshake, h.sender, h.receiver)
	}
	return h, nil
}

// speaks tells whether the sender has a version between low and high.
func (h hello) speaks(low, high uint16) bool { return h.versionMin <= high && h.versionMax >= low }

type answer struct {
	version     uint16
	code        RefusalCode
	node        int32
	cluster     ClusterID
	incarnation uint64
	nonce       uint64
	reason      string
}

func (a answer) encode() []byte {
	reason := printable(a.reason, reasonMax)
	b := make([]byte, answerSize, answerSize+len(reason))
	copy(b, handshakeMagic)
	binary.BigEndian.PutUint16(b[8:], a.version)
	binary.BigEndian.PutUint16(b[10:], uint16(a.code))
	binary.BigEndian.PutUint32(b[12:], uint32(a.node))
	copy(b[16:32], a.cluster[:])
	binary.BigEndian.PutUint64(b[32:], a.incarnation)
	binary.BigEndian.PutUint64(b[40:], a.nonce)
	binary.BigEndian.PutUint16(b[48:], uint16(len(reason)))
	b = append(b, reason...)
	binary.BigEndian.PutUint64(b[56:], answerSum(b))
	return b
}

// answerSum is the sum of all but the sum itself.
func answerSum(b []byte) uint64 { return sum64(sum64(0, b[:56]), b[answerSize:]) }

// readAnswer reads what encode wrote, and nothing beyond.
func readAnswer(r io.Reader) (answer, error) {
	b := make([]byte, answerSize, answerSize+reasonMax)
	if _, err := io.ReadFull(r, b); err != nil {
		return answer{}, err
	}
	n := int(binary.BigEndian.Uint16(b[48:]))
	if string(b[:8]) != handshakeMagic || n > reasonMax {
		return answer{}, fmt.Errorf("%w: magic", ErrBadHandshake)
	}
	b = b[:answerSize+n]
	if _, err := io.ReadFull(r, b[answerSize:]); err != nil {
		return answer{}, err
	}
	if binary.BigEndian.Uint64(b[56:]) != answerSum(b) {
		return answer{}, fmt.Errorf("%w: checksum", ErrBadHandshake)
	}
	a := answer{
		version:     binary.BigEndian.Uint16(b[8:]),
		code:        RefusalCode(binary.BigEndian.Uint16(b[10:])),
		node:        int32(binary.BigEndian.Uint32(b[12:])),
		cluster:     ClusterID(b[16:32]),
		incarnation: binary.BigEndian.Uint64(b[32:]),
		nonce:       binary.BigEndian.Uint64(b[40:]),
		reason:      printable(string(b[answerSize:]), reasonMax),
	}
	if refusalErrors[a.code] == nil && a.code != 0 {
		return answer{}, fmt.Errorf("%w: refused with unknown code %d: %s", ErrBadHandshake, a.code, a.reason)
	}
	return a, nil
}

// printable makes text of a stranger fit for a log: valid UTF-8, nothing unprintable, at most n bytes.
func printable(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError {
			return '?'
		}
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	for len(s) > n {
		_, size := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-size]
	}
	return s
}

// frameSeeds gives the seeds of the frames that the dialling and the accepting side write.
func frameSeeds(dialled, accepted uint64) (fromDialler, fromAcceptor uint64) {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], dialled)
	binary.BigEndian.PutUint64(b[8:], accepted)
	return sum64(1, b[:]), sum64(2, b[:])
}
