package segment

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math"
	"sort"
	"sync"
	"syscall"

	"github.com/billetlog/billet/internal/vfs"
)

// flushEntries is how many entries of the active segment's index are kept in
// memory before they are written to its file.
const flushEntries = 128

// errIndexDamaged says that an entry is not what was written. Whoever gets it
// walks the log instead, or builds the index anew.
var errIndexDamaged = errors.New("segment: index entry damaged")

// repairable tells whether a lookup failed for the index alone.
func repairable(err error) bool {
	return errors.Is(err, errIndexDamaged) || errors.Is(err, fs.ErrNotExist)
}

// index finds frames of one segment. Only the writer adds; lookups may run beside
// it. Entries live in the file, the latest of an active segment in tail.
//
// An index that lacks entries finds the same, only slower: every lookup takes the
// last entry that is surely not behind what it looks for and walks from there.
type index struct {
	header   *header
	interval int64
	file     *handle

	mu struct {
		sync.Mutex
		count   int // entries in the file, without those of tail
		tail    []indexEntry
		lastPos int64 // of the frame that the last entry is for
		size    int64 // of the file; more than the entries only at open
		owned   bool  // the writer holds a reference to file
	}
}

func newIndex(fs vfs.FS, path string, h header, interval int) *index {
	x := &index{header: &h, interval: int64(interval), file: &handle{fs: fs, path: path}}
	x.mu.lastPos = math.MinInt32
	return x
}

func entryPos(number int) int64 { return indexHeaderSize + int64(number)*indexEntrySize }

// note tells the index of frame f at p. The caller is the writer.
func (x *index) note(p place, f *frame) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if f.kind == KindData && p.pos-x.mu.lastPos < x.interval {
		return
	}
	x.mu.lastPos = p.pos
	x.mu.tail = append(x.mu.tail, newEntry(x.header, p, f))
}

func newEntry(h *header, p place, f *frame) indexEntry {
	return indexEntry{
		offset:       uint32(p.offset - h.base),
		index:        uint32(p.index - h.firstIndex),
		pos:          uint32(p.pos),
		term:         uint32(f.term),
		maxTimestamp: p.maxTimestamp,
	}
}

// full tells whether it is time to flush.
func (x *index) full() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.mu.tail) >= flushEntries
}

// flush writes the tail to the file, which it makes when there is none. The
// caller is the writer, or holds its lock.
func (x *index) flush() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(x.mu.tail) == 0 {
		return nil
	}
	file, err := x.openLocked()
	if err != nil {
		return err
	}
	b := make([]byte, len(x.mu.tail)*indexEntrySize)
	for i, e := range x.mu.tail {
		e.encode(b[i*indexEntrySize:], x.header.id, x.mu.count+i)
	}
	at := entryPos(x.mu.count)
	same, err := x.overwritesLocked(file, b, at)
	if err != nil {
		return err
	}
	if !same {
		// Whatever a failed write leaves there is cut before the next one.
		x.mu.size = max(x.mu.size, at+int64(len(b)))
		if _, err := file.WriteAt(b, at); err != nil {
			return err
		}
	}
	x.mu.count += len(x.mu.tail)
	if x.mu.tail = x.mu.tail[:0]; cap(x.mu.tail) > 2*flushEntries {
		x.mu.tail = nil
	}
	return nil
}

// overwritesLocked tells whether b stands at position at already. Something else
// there is cut away, durably, so that no crash mixes old entries with new ones.
func (x *index) overwritesLocked(file vfs.File, b []byte, at int64) (bool, error) {
	if at >= x.mu.size {
		return false, nil
	}
	old := make([]byte, len(b))
	n, err := file.ReadAt(old, at)
	if err != nil && err != io.EOF {
		return false, err
	}
	if n == len(b) && bytes.Equal(old, b) {
		return true, nil
	}
	return false, x.cutLocked(file, x.mu.count)
}

func (x *index) cutLocked(file vfs.File, count int) error {
	if err := file.Truncate(entryPos(count)); err != nil {
		return err
	}
	x.mu.size = entryPos(count)
	return file.SyncData()
}

// openLocked returns the file, open for writing until close.
func (x *index) openLocked() (vfs.File, error) {
	if x.mu.owned {
		return x.file.file, nil
	}
	files := x.file.fs
	if x.mu.size > 0 {
		f, err := files.Open(x.file.path)
		if err != nil {
			return nil, err
		}
		x.file.adopt(f)
		x.mu.owned = true
		return f, nil
	}
	if err := files.RemoveAll(x.file.path); err != nil {
		return nil, err
	}
	f, err := files.Create(x.file.path)
	if err != nil {
		return nil, err
	}
	if _, err := f.WriteAt(encodeIndexHeader(x.header), 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	x.file.adopt(f)
	x.mu.owned = true
	x.mu.size = indexHeaderSize
	return f, nil
}

// seal writes the trailer of a segment that ends at end.
func (x *index) seal(end place) error {
	if err := x.flush(); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	file, err := x.openLocked()
	if err != nil {
		return err
	}
	x.mu.size = entryPos(x.mu.count) + indexTrailerSize
	_, err = file.WriteAt(encodeTrailer(x.header, x.mu.count, end), entryPos(x.mu.count))
	x.mu.tail = nil
	return err
}

// truncate forgets the entries for frames at pos and behind, and any trailer. It
// is durable when it returns. A damaged index forgets all: it finds then by
// walking what it found by entries.
func (x *index) truncate(pos int64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	kept, err := x.searchLocked(func(e indexEntry) bool { return int64(e.pos) < pos })
	if repairable(err) {
		kept, err = 0, nil
	}
	if err != nil {
		return err
	}
	inFile := min(kept, x.mu.count)
	if x.mu.size > entryPos(inFile) {
		file, err := x.openLocked()
		if err != nil {
			return err
		}
		if err := x.cutLocked(file, inFile); err != nil {
			return err
		}
	}
	x.mu.tail = x.mu.tail[:kept-inFile]
	x.mu.count = inFile
	x.mu.lastPos = math.MinInt32
	if kept == 0 {
		return nil
	}
	e, err := x.entryLocked(kept - 1)
	x.mu.lastPos = int64(e.pos)
	return err
}

// settle cuts what lies in the file behind the entries, at the end of recovery,
// when all entries are flushed.
func (x *index) settle() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.tail = nil
	if x.mu.size <= entryPos(x.mu.count) {
		return nil
	}
	file, err := x.openLocked()
	if err != nil {
		return err
	}
	return x.cutLocked(file, x.mu.count)
}

// searchLocked returns the number of entries for which before holds; it must hold
// for all entries up to some one, and for none behind.
func (x *index) searchLocked(before func(indexEntry) bool) (int, error) {
	if t := x.mu.tail; len(t) > 0 && (x.mu.count == 0 || before(t[0])) {
		return x.mu.count + sort.Search(len(t), func(i int) bool { return !before(t[i]) }), nil
	}
	if x.mu.count == 0 {
		return 0, nil
	}
	if _, err := x.file.acquire(); err != nil {
		return 0, err
	}
	defer x.file.release()
	var failed error
	n := sort.Search(x.mu.count, func(i int) bool {
		e, err := x.entryLocked(i)
		if err != nil {
			failed = err
			return true
		}
		return !before(e)
	})
	return n, failed
}

// floor returns the last entry for which before holds.
func (x *index) floor(before func(indexEntry) bool) (indexEntry, bool, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n, err := x.searchLocked(before)
	if err != nil || n == 0 {
		return indexEntry{}, false, err
	}
	e, err := x.entryLocked(n - 1)
	return e, err == nil, err
}

// entryLocked returns entry i.
func (x *index) entryLocked(i int) (indexEntry, error) {
	if i >= x.mu.count {
		return x.mu.tail[i-x.mu.count], nil
	}
	file, err := x.file.acquire()
	if err != nil {
		return indexEntry{}, err
	}
	defer x.file.release()
	var b [indexEntrySize]byte
	if _, err := file.ReadAt(b[:], entryPos(i)); err != nil && err != io.EOF {
		return indexEntry{}, err
	}
	e, ok := decodeIndexEntry(b[:], x.header.id, i)
	if !ok {
		return e, errIndexDamaged
	}
	return e, nil
}

// entries returns how many there are.
func (x *index) entries() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.mu.count + len(x.mu.tail)
}

// close gives up the writer's hold on the file.
func (x *index) close() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.owned {
		x.mu.owned = false
		x.file.release()
	}
}

// onlyFull tells whether a flush went well, or failed because the disk is full: an index is a cache, so a full disk must keep no log
// from being opened, read and closed.
func onlyFull(err error) bool { return err == nil || errors.Is(err, syscall.ENOSPC) }
