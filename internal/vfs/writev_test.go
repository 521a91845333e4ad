package vfs

import (
	"bytes"
	"math/rand/v2"
	"syscall"
	"testing"
)

// shortWriter writes a random part of what it is asked to, and fails when it has
// no room.
type shortWriter struct {
	data []byte
	room int
	rand *rand.Rand
}

func (w *shortWriter) WriteAt(p []byte, off int64) (int, error) {
	n := min(len(p), w.room-int(off))
	w.data = append(w.data[:off], p[:n]...)
	if n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func (w *shortWriter) pwritev(bufs [][]byte, off int64) (int, error) {
	if len(bufs) > iovMax {
		return 0, syscall.EINVAL
	}
	all := bytes.Join(bufs, nil)
	n := min(1+w.rand.IntN(len(all)), w.room-int(off))
	if n == 0 {
		return 0, syscall.ENOSPC
	}
	return w.WriteAt(all[:n], off)
}

func TestWriteGatheredGoesOnAfterShortWrites(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 300 {
		var bufs [][]byte
		for range r.IntN(20) + iovMax*r.IntN(2) {
			bufs = append(bufs, fill(byte(r.Int()), r.IntN(4)))
		}
		want := bytes.Join(bufs, nil)
		w := &shortWriter{room: len(want), rand: r}
		n, err := writeGathered(w, bufs, 0)
		if n != len(want) || err != nil || !bytes.Equal(w.data, want) {
			t.Fatalf("wrote %d of %d, %v", n, len(want), err)
		}
		if len(want) == 0 {
			continue
		}
		full := &shortWriter{room: r.IntN(len(want)), rand: r}
		n, err = writeGathered(full, bufs, 0)
		if n != full.room || err != syscall.ENOSPC || !bytes.Equal(full.data, want[:n]) {
			t.Fatalf("room %d: wrote %d of %d, %v", full.room, n, len(want), err)
		}
	}
}
