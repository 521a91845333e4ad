package vfs

import "io"

// iovMax is the most buffers one pwritev takes (IOV_MAX on Linux and darwin).
const iovMax = 1024

// gatherer is a file whose pwritev may write less than asked, but not nothing
// without an error.
type gatherer interface {
	io.WriterAt
	pwritev(bufs [][]byte, off int64) (int, error)
}

// writeGathered writes all of bufs at off, in as few calls as f allows. A buffer
// that was written in part is finished by a plain write, so that the caller's list
// is never changed.
func writeGathered(f gatherer, bufs [][]byte, off int64) (int, error) {
	total := 0
	for {
		for len(bufs) > 0 && len(bufs[0]) == 0 {
			bufs = bufs[1:]
		}
		if len(bufs) == 0 {
			return total, nil
		}
		n, err := f.pwritev(bufs[:min(len(bufs), iovMax)], off+int64(total))
		total += n
		if err != nil {
			return total, err
		}
		for len(bufs) > 0 && n >= len(bufs[0]) {
			n -= len(bufs[0])
			bufs = bufs[1:]
		}
		if n == 0 {
			continue
		}
		m, err := f.WriteAt(bufs[0][n:], off+int64(total))
		total += m
		if err != nil {
			return total, err
		}
		bufs = bufs[1:]
	}
}
