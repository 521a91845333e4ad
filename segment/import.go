package segment

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/billetlog/billet/internal/vfs"
)

// Importer fills a generation's folder with the frames of an extent, which come in as ranges of bytes. It keeps nothing that it did not
// verify as Open does, leaves no more than Options.MaxUnsyncedBytes unsynced, so that its end is short, and can be closed, or cut off by a crash, at any point: the next one over the same folder goes on from the last
// whole frame. Methods may be called from several goroutines, and wait for one another.
//
// After an error that does not wrap ErrCorrupt or come from the reader every call returns it: close the importer and open another.
type Importer struct {
	options Options
	info    ExtentInfo

	reuse        *Log // nil for none
	reuseThrough uint64

	closed      atomic.Bool
	have, total atomic.Int64

	mu struct {
		sync.Mutex
		parts    []part
		next     int // parts before are complete
		named    bool
		room     *[]byte // of the pool; nil until there is something to read
		buf      []byte  // it, or a larger one
		unsynced int64   // written to the part that is open
		failure  error
		finished bool
	}
}

// part is one segment of an import.
type part struct {
	at       place // how far it is there
	end      place // where it is complete; its timestamp is of no meaning
	complete bool
	copied   bool     // reuse was asked
	refused  int      // times in a row that nothing was found to follow
	segment  *segment // nil while there is no file
	file     vfs.File // nil while not open
}

// OpenImporter begins, or goes on with, the import of what info describes into the folder o.Dir, whose parent must be there durably. The
// folder must belong to nobody else. What is in it and fits is kept; everything else of a log that is in it is deleted.
//
// reuse, when it is not nil, is the replica's present log, whose entries up to reuseThrough are known to be those of the extent (they are
// committed) and to be undamaged. Its sealed segments are linked where they are the same, and other entries copied, instead of asked for.
// It must stay open as long as the importer is.
//
// An info that no log can have is an error that wraps ErrCorrupt.
func OpenImporter(o Options, info ExtentInfo, reuse *Log, reuseThrough uint64) (*Importer, error) {
	o.ensureDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	if err := info.validate(); err != nil {
		return nil, err
	}
	info.Segments = slices.Clone(info.Segments)
	im := &Importer{options: o, info: info, reuse: reuse, reuseThrough: reuseThrough}
	im.mu.parts = make([]part, len(info.Segments))
	for n := range im.mu.parts {
		im.mu.parts[n] = part{at: info.start(n), end: info.end(n)}
		im.total.Add(info.Segments[n].Bytes)
	}
	if err := im.open(); err != nil {
		im.mu.Lock()
		defer im.mu.Unlock()
		im.closePartsLocked()
		return nil, err
	}
	return im, nil
}

// open finds out what is there.
func (im *Importer) open() error {
	im.mu.Lock()
	defer im.mu.Unlock()
	if err := im.options.FS.MkdirAll(im.options.Dir); err != nil {
		return err
	}
	if err := im.sweepLocked(); err != nil {
		return err
	}
	for n := range im.mu.parts {
		p := &im.mu.parts[n]
		if !p.complete && n < len(im.mu.parts)-1 {
			if err := im.linkLocked(n); err != nil {
				return err
			}
		}
		if p.segment != nil && !p.complete {
			if err := im.scanLocked(p); err != nil {
				return err
			}
		}
		if p.at.pos == p.end.pos && !p.complete { // without frames, or all there
			if err := im.completeLocked(n); err != nil && !errors.Is(err, ErrCorrupt) {
				return err
			}
		}
	}
	im.countLocked()
	return nil
}

// Next names the next bytes that are missing: of a segment of the extent, from the offset on, as Extent.Open has it. ok is false when all is
// there. Before it does, it copies what it can from the log given for reuse, of one segment after the other.
func (im *Importer) Next() (segment int, offset, length int64, ok bool) {
	im.mu.Lock()
	defer im.mu.Unlock()
	return im.nextLocked()
}

func (im *Importer) nextLocked() (segment int, offset, length int64, ok bool) {
	m := &im.mu
	for ; m.next < len(m.parts); m.next++ {
		p := &m.parts[m.next]
		if !p.complete && !p.copied && m.failure == nil && !im.closed.Load() {
			p.copied = true
			im.copyLocked(m.next)
		}
		if !p.complete {
			m.named = true
			return m.next, p.at.pos - segmentHeaderSize, p.end.pos - p.at.pos, true
		}
	}
	return 0, 0, 0, false
}

// ReadFrom takes the bytes that Next named from r and returns how many it kept. It verifies each frame before it writes it. io.ErrUnexpectedEOF
// means that r ended early: what was whole is kept, and Next names the rest. An error that wraps ErrCorrupt means that the bytes are not the
// extent's: those before are kept. It does not read beyond the range. Whoever calls Close meanwhile waits for r.
func (im *Importer) ReadFrom(r io.Reader) (int64, error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if err := im.checkLocked(); err != nil {
		return 0, err
	}
	if !im.mu.named {
		if _, _, _, ok := im.nextLocked(); !ok {
			return 0, nil
		}
	}
	im.mu.named = false
	n := im.mu.next
	p := &im.mu.parts[n]
	kept, err := im.ingestLocked(n, r, p.end.pos-p.at.pos)
	switch {
	case kept > 0:
		p.refused = 0
	case errors.Is(err, ErrCorrupt):
		err = im.doubtLocked(p, err)
	}
	if err == nil && !p.complete {
		err = io.ErrUnexpectedEOF
	}
	return kept, err
}

// doubtLocked is told that nothing follows what is there of a part. The second time it is given up: it may be from another source, and be what
// is wrong.
func (im *Importer) doubtLocked(p *part, err error) error {
	p.refused++
	if p.refused < 2 || p.segment == nil {
		return err
	}
	p.refused = 0
	if removeErr := im.removeLocked(p); removeErr != nil {
		return im.failLocked(removeErr)
	}
	return err
}

// checkLocked says why the importer takes nothing.
func (im *Importer) checkLocked() error {
	if im.closed.Load() {
		return ErrClosed
	}
	return im.mu.failure
}

// Progress returns how many bytes of how many are there.
func (im *Importer) Progress() (have, total int64) { return im.have.Load(), im.total.Load() }

func (im *Importer) countLocked() {
	have := int64(0)
	for n := range im.mu.parts {
		have += im.mu.parts[n].at.pos - segmentHeaderSize
	}
	im.have.Store(have)
}

// failLocked makes err the answer to everything.
func (im *Importer) failLocked(err error) error {
	if im.mu.failure == nil {
		im.mu.failure = err
	}
	return err
}

// Finish makes the import a log that Open opens, durably, and closes the importer. c is the checkpoint of the last entry. When it returns nil,
// the folder and all that is in it is durable, with the folder's own name.
func (im *Importer) Finish(c Checkpoint) error {
	im.mu.Lock()
	defer im.mu.Unlock()
	if err := im.checkLocked(); err != nil {
		return err
	}
	m := &im.mu
	for n := range m.parts {
		if p := &m.parts[n]; !p.complete {
			return fmt.Errorf("%w: import of %s: segment %d has %d of %d bytes", ErrUnavailable, im.options.Dir, n,
				p.at.pos-segmentHeaderSize, p.end.pos-segmentHeaderSize)
		}
	}
	last := &m.parts[len(m.parts)-1]
	if c.Index != im.info.LastIndex || c.Term != im.info.LastTerm || c.Offset != im.info.EndOffset {
		return fmt.Errorf("segment: checkpoint of index %d, term %d, offset %d for an import that ends with %d, %d, %d",
			c.Index, c.Term, c.Offset, im.info.LastIndex, im.info.LastTerm, im.info.EndOffset)
	}
	if err := im.finishLocked(last, c); err != nil {
		return im.failLocked(err)
	}
	im.closed.Store(true)
	im.closePartsLocked()
	return nil
}

func (im *Importer) finishLocked(last *part, c Checkpoint) error {
	o := &im.options
	s := state{Checkpoint: c, key: o.Identity.Key, generation: o.Generation, segment: last.segment.header.base,
		segmentID: last.segment.header.id, place: last.at, entries: last.segment.index.entries()}
	// This syncs the folder too, and so all names in it.
	if err := vfs.WriteFileAtomic(o.FS, pathOf(o.Dir, c.Offset, stateSuffix), s.encode()); err != nil {
		return err
	}
	return o.FS.SyncDir(filepath.Dir(o.Dir))
}

// Close ends the import and keeps what is there. A second Close, or one after Finish, returns ErrClosed.
func (im *Importer) Close() error {
	if im.closed.Swap(true) {
		return ErrClosed
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	im.closePartsLocked()
	return nil
}

// closePartsLocked closes the files. What of them counts was synced.
func (im *Importer) closePartsLocked() {
	for n := range im.mu.parts {
		p := &im.mu.parts[n]
		if p.segment != nil {
			p.segment.index.close()
		}
		if p.file != nil {
			_ = p.file.Close()
			p.file = nil
		}
	}
	if im.mu.room != nil {
		scanBuffers.Put(im.mu.room)
		im.mu.room, im.mu.buf = nil, nil
	}
}
