package segment

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/billetlog/billet/internal/vfs"
)

// Names of the files in a generation's folder: twenty digits and one of these.
const (
	logSuffix   = ".log"
	indexSuffix = ".index"
	stateSuffix = ".state"
	tempSuffix  = ".tmp"
	nameDigits  = 20
)

func fileName(offset int64, suffix string) string {
	return fmt.Sprintf("%0*d%s", nameDigits, offset, suffix)
}

func pathOf(dir string, offset int64, suffix string) string {
	return filepath.Join(dir, fileName(offset, suffix))
}

// parseName takes the offset out of a name that fileName made.
func parseName(name, suffix string) (int64, bool) {
	digits, ok := strings.CutSuffix(name, suffix)
	if !ok || len(digits) != nameDigits {
		return 0, false
	}
	offset, err := strconv.ParseInt(digits, 10, 64)
	return offset, err == nil && offset >= 0 && fileName(offset, suffix) == name
}

// place is the state of a log between two frames.
type place struct {
	pos          int64  // in the segment's file
	offset       int64  // end offset there
	index        uint64 // of the frame that starts there
	term         uint64 // of the frame before; also that of the last no-op
	maxTimestamp int64  // of the segment so far
}

// after is the place behind f.
func (p place) after(f *frame) place {
	p.pos += int64(f.size)
	p.offset = f.next
	p.index++
	p.term = f.term
	p.maxTimestamp = max(p.maxTimestamp, f.maxTimestamp)
	return p
}

// start is the place of the first entry of a segment with header h.
func (h *header) start() place {
	return place{pos: segmentHeaderSize, offset: h.base, index: h.firstIndex,
		term: h.prevTerm, maxTimestamp: noTimestamp}
}

// segment is one file of the log with its index. Its header never changes; size
// grows while it is the active one. end is valid once sealed is set.
type segment struct {
	header header
	name   string // base name of the file
	log    *handle
	index  *index

	size   atomic.Int64 // bytes that readers may read
	sealed atomic.Bool
	end    place // of a sealed segment; written once, before sealed
}

func newSegment(fs vfs.FS, dir string, h header, interval int) *segment {
	name := fileName(h.base, logSuffix)
	return &segment{
		header: h,
		name:   name,
		log:    &handle{fs: fs, path: filepath.Join(dir, name)},
		index:  newIndex(fs, filepath.Join(dir, fileName(h.base, indexSuffix)), h, interval),
	}
}

// damage reports bytes of s that are not what was written.
func (s *segment) damage(pos, offset int64, reason string) *CorruptionError {
	return &CorruptionError{File: s.log.path, Pos: pos, Offset: offset, Reason: reason}
}

// handle is a file that is open while somebody uses it.
type handle struct {
	fs   vfs.FS
	path string

	mu   sync.Mutex
	file vfs.File // nil when refs is 0
	refs int
}

// adopt takes over an open file and counts the caller as its first user.
func (h *handle) adopt(f vfs.File) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.file, h.refs = f, h.refs+1
}

// acquire opens the file for reading unless it is open already.
func (h *handle) acquire() (vfs.File, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.refs == 0 {
		f, err := h.fs.OpenReadOnly(h.path)
		if err != nil {
			return nil, err
		}
		h.file = f
	}
	h.refs++
	return h.file, nil
}

// release undoes one acquire or adopt. What was written is synced by then, or
// given up, so an error of Close has nothing to say.
func (h *handle) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refs--
	if h.refs == 0 {
		_ = h.file.Close()
		h.file = nil
	}
}
