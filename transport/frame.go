package transport

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A frame, all numbers big-endian. Frozen for protocol version 1.
//
//	 0  4  length of the payload
//	 4  1  type
//	 5  3  zero
//	 8  4  argument: a request's time in ms (0: none), an error frame's code, else 0
//	12  4  number of the frame in its direction of its connection, from 0, modulo 2^32
//	16  8  request id, else 0
//	24  8  xxhash64 of the payload
//	32  8  xxhash64 of bytes 0 to 32
//	40     payload
//
// Both sums are seeded with a value that the two nonces of the handshake give for this direction.
const headerSize = 40

type frameType uint8

const (
	framePing     frameType = 1 // empty, either way, when nothing else was sent for a while
	frameBatch    frameType = 2
	frameRequest  frameType = 3
	frameCancel   frameType = 4 // empty: the caller waits no more
	frameResponse frameType = 5
	frameError    frameType = 6 // argument: answerCode; payload: words
	framePull     frameType = 7
	framePullBody frameType = 8 // the length of what follows, raw
)

// answerTextMax bounds the words of an error frame, in bytes.
const answerTextMax = 1024

type header struct {
	length     uint32
	kind       frameType
	arg        uint32
	seq        uint32
	id         uint64
	payloadSum uint64
}

// encode writes the header to the first headerSize bytes of dst.
func (h header) encode(dst []byte, seed uint64) {
	binary.BigEndian.PutUint32(dst[0:], h.length)
	binary.BigEndian.PutUint32(dst[4:], uint32(h.kind)<<24)
	binary.BigEndian.PutUint32(dst[8:], h.arg)
	binary.BigEndian.PutUint32(dst[12:], h.seq)
	binary.BigEndian.PutUint64(dst[16:], h.id)
	binary.BigEndian.PutUint64(dst[24:], h.payloadSum)
	binary.BigEndian.PutUint64(dst[32:], sum64(seed, dst[:32]))
}

// decodeHeader reads what encode wrote. b has headerSize bytes.
func decodeHeader(b []byte, seed uint64) (header, error) {
	if binary.BigEndian.Uint64(b[32:]) != sum64(seed, b[:32]) {
		return header{}, fmt.Errorf("%w: checksum of the header", ErrBadFrame)
	}
	if b[5]|b[6]|b[7] != 0 {
		return header{}, fmt.Errorf("%w: padding is not zero", ErrBadFrame)
	}
	return header{
		length:     binary.BigEndian.Uint32(b[0:]),
		kind:       frameType(b[4]),
		arg:        binary.BigEndian.Uint32(b[8:]),
		seq:        binary.BigEndian.Uint32(b[12:]),
		id:         binary.BigEndian.Uint64(b[16:]),
		payloadSum: binary.BigEndian.Uint64(b[24:]),
	}, nil
}

// frameLimits tells the largest payload of each type that may come on a stream in a direction. A type that is not there may not.
type frameLimits map[frameType]int

// frameReader takes frames off a connection. Any error is final.
type frameReader struct {
	r      *bufio.Reader
	seed   uint64
	seq    uint32
	limits frameLimits
	head   [headerSize]byte
}

// next reads a header and holds it against the stream's rules. The payload must be read or discarded next. A clean end between two
// frames is io.EOF.
func (f *frameReader) next() (header, error) {
	if n, err := io.ReadFull(f.r, f.head[:]); err != nil {
		if n > 0 && errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: cut after %d bytes of a header: %w", ErrBadFrame, n, err)
		}
		return header{}, err
	}
	h, err := decodeHeader(f.head[:], f.seed)
	if err != nil {
		return header{}, err
	}
	most, ok := f.limits[h.kind]
	switch {
	case !ok:
		return header{}, fmt.Errorf("%w: type %d has no place here", ErrBadFrame, h.kind)
	case int64(h.length) > int64(most):
		return header{}, fmt.Errorf("%w: %d bytes of type %d, at most %d are allowed", ErrBadFrame, h.length, h.kind, most)
	case h.seq != f.seq:
		return header{}, fmt.Errorf("%w: number %d instead of %d", ErrBadFrame, h.seq, f.seq)
	}
	f.seq++
	return h, nil
}

// payload reads the payload into buf, which is replaced if too small.
func (f *frameReader) payload(h header, buf []byte) ([]byte, error) {
	n := int(h.length)
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	buf = buf[:n]
	if _, err := io.ReadFull(f.r, buf); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = fmt.Errorf("%w: cut within a payload: %w", ErrBadFrame, io.ErrUnexpectedEOF)
		}
		return nil, err
	}
	if sum64(f.seed, buf) != h.payloadSum {
		return nil, fmt.Errorf("%w: checksum of the payload", ErrBadFrame)
	}
	return buf, nil
}

// discard skips the payload.
func (f *frameReader) discard(h header) error {
	_, err := f.r.Discard(int(h.length))
	return err
}

// appendFrame appends a frame to dst.
func appendFrame(dst []byte, seed uint64, h header, payload []byte) []byte {
	h.length = uint32(len(payload))
	h.payloadSum = sum64(seed, payload)
	at := len(dst)
	dst = append(dst, make([]byte, headerSize)...)
	h.encode(dst[at:], seed)
	return append(dst, payload...)
}
