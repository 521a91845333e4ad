package batch

import "sync"

// Bounds, in bytes of capacity, on the buffers that Release keeps.
const (
	minPooled = 1 << 10
	maxPooled = 4 << 20
)

// buffers holds *[]byte, and boxes holds empty *[]byte, so that neither Release
// nor takeBuffer allocates.
var (
	buffers sync.Pool
	boxes   = sync.Pool{New: func() any { return new([]byte) }}
)

// Release gives the memory of a batch back for other builders to use. Pass what
// Builder.Finish or, with headroom, Builder.Framed returned. The caller must be
// the only one to hold it, and must not touch it again.
//
// It is optional: memory that is not released is collected as garbage.
func Release(buf []byte) {
	if cap(buf) < minPooled || cap(buf) > maxPooled {
		return
	}
	box := boxes.Get().(*[]byte)
	*box = buf[:0]
	buffers.Put(box)
}

// takeBuffer returns an empty buffer, if possible one with room for size bytes.
func takeBuffer(size int) []byte {
	box, ok := buffers.Get().(*[]byte)
	if !ok {
		return make([]byte, 0, size)
	}
	buf := *box
	if cap(buf) < size {
		buffers.Put(box)
		return make([]byte, 0, size)
	}
	*box = nil
	boxes.Put(box)
	return buf
}
