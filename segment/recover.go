package segment

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/billetlog/billet/internal/batch"
)

// OpenHints is what the caller knows about a log it opens.
type OpenHints struct {
	// DurableIndex is the durable mark: entries up to it are known to be on
	// disk, so when one is not there or not whole, that is damage.
	DurableIndex uint64
	// MaxCheckpointIndex makes Open ignore checkpoints above it; 0 ignores none.
	MaxCheckpointIndex uint64
}

// Recovery tells what Open found and did.
type Recovery struct {
	CheckpointIndex uint64 // where verification began; 0 when at the start
	Frames          int    // verified
	Bytes           int64  // verified
	IndexesRebuilt  int    // of sealed segments

	CutBytes  int64  // torn tail; 0 when there was none
	CutFile   string // path
	CutPos    int64
	CutReason string // why the byte there is invalid
	// UnfinishedRoll is the segment that was just being made and is removed,
	// empty when there was none.
	UnfinishedRoll string
}

// recovery is one Open. Nothing on disk is changed before apply.
type recovery struct {
	log    *Log
	hints  OpenHints
	result Recovery

	segments []*segment
	torn     *segmentFile // the last file, when its header is not whole
	states   []state      // newest first
	paths    []string     // of states
	garbage  []string     // paths to remove
	stale    []string     // state files that do not count

	from     int   // number of the segment in which verification starts
	fromAt   place // and where
	rebuild  []*segment
	end      place // of the last segment
	fileSize int64 // of the last segment
}

// segmentFile is what the name of a segment says.
type segmentFile struct {
	base int64
	path string
}

// Open opens the log in Options.Dir. Sealed segments below the newest checkpoint
// are trusted; from there on every byte is verified. It cuts a torn tail, and
// makes durable what is kept. Damage is a *CorruptionError, and then nothing was
// changed. The folder must exist.
func Open(o Options, h OpenHints) (*Log, Recovery, error) {
	o.ensureDefaults()
	if err := o.validate(); err != nil {
		return nil, Recovery{}, err
	}
	r := &recovery{log: &Log{options: o}, hints: h}
	for _, step := range []func() error{r.list, r.checkChain, r.findStart, r.verifySealed, r.verifyActive, r.apply} {
		if err := step(); err != nil {
			return nil, r.result, err
		}
	}
	return r.log, r.result, nil
}

// list reads the folder: names, headers, states.
func (r *recovery) list() error {
	o := &r.log.options
	names, err := o.FS.List(o.Dir)
	if err != nil {
		return err
	}
	var files []segmentFile
	bases := map[int64]bool{}
	for _, name := range names {
		if base, ok := parseName(name, logSuffix); ok {
			files = append(files, segmentFile{base, filepath.Join(o.Dir, name)})
			bases[base] = true
		}
	}
	for _, name := range names {
		path := filepath.Join(o.Dir, name)
		if base, ok := parseName(name, indexSuffix); ok && !bases[base] || filepath.Ext(name) == tempSuffix {
			r.garbage = append(r.garbage, path)
		}
		if offset, ok := parseName(name, stateSuffix); ok {
			if err := r.readState(path, offset); err != nil {
				return err
			}
		}
	}
	if len(files) == 0 {
		return &CorruptionError{File: o.Dir, Offset: -1, Reason: "there is no segment"}
	}
	for i, f := range files {
		if err := r.readHeader(f, i == len(files)-1); err != nil {
			return err
		}
	}
	return nil
}

// readHeader opens one segment. The last one may be unfinished, unless it is the only one.
func (r *recovery) readHeader(f segmentFile, last bool) error {
	o := &r.log.options
	file, err := o.FS.OpenReadOnly(f.path)
	if err != nil {
		return err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return err
	}
	b := make([]byte, segmentHeaderSize)
	n, err := file.ReadAt(b, 0)
	if err != nil && err != io.EOF {
		return err
	}
	h, err := decodeHeader(b[:n])
	if err == nil && h.base != f.base {
		err = frameErrorf("header says base offset %d", h.base)
	}
	if err != nil && last && len(r.segments) > 0 && size <= segmentHeaderSize {
		// Its header is durable before anything is written behind it.
		r.torn = &f
		return nil
	}
	if err != nil {
		return &CorruptionError{File: f.path, Offset: f.base, Reason: err.Error()}
	}
	// A sealed segment may have been taken over, as it is, from the log of an earlier generation.
	if h.identity != o.Identity || h.generation > o.Generation || last && h.generation != o.Generation {
		return fmt.Errorf("%w: %s is of %+v, generation %d", ErrForeign, f.path, h.identity, h.generation)
	}
	s := newSegment(o.FS, o.Dir, h, o.IndexIntervalBytes)
	s.size.Store(size)
	r.segments = append(r.segments, s)
	r.fileSize = size
	return nil
}

// checkChain reads the summaries of sealed segments and compares each with the
// segment behind it. A segment without a summary is to be verified.
func (r *recovery) checkChain() error {
	for i, s := range r.segments[:len(r.segments)-1] {
		end, ok, err := s.index.readTrailer()
		if err != nil {
			return err
		}
		if !ok {
			r.rebuild = append(r.rebuild, s)
			if end, err = r.scan(s, s.header.start(), nil); err != nil {
				return err
			}
		}
		if err := r.seal(s, end, &r.segments[i+1].header); err != nil {
			return err
		}
	}
	return nil
}

// seal notes where s ends, which must be at its file's end and the next one's
// start.
func (r *recovery) seal(s *segment, end place, next *header) error {
	if size := s.size.Load(); end.pos != size {
		return s.damage(min(end.pos, size), end.offset, fmt.Sprintf("sealed with %d bytes, has %d", end.pos, size))
	}
	if end.offset != next.base || end.index != next.firstIndex || end.term != next.prevTerm {
		return &CorruptionError{File: filepath.Join(r.log.options.Dir, fileName(next.base, logSuffix)), Offset: end.offset,
			Reason: fmt.Sprintf("does not continue %s: that ends at offset %d, index %d, term %d, this starts at %d, %d, %d; a segment may be missing",
				s.name, end.offset, end.index-1, end.term, next.base, next.firstIndex, next.prevTerm)}
	}
	s.end = end
	s.sealed.Store(true)
	return nil
}

// scan verifies every frame of s from a place to the end of the file, and calls
// each with what it found. The returned place is good in any case.
func (r *recovery) scan(s *segment, from place, each func(place, *frame)) (place, error) {
	file, err := s.log.acquire()
	if err != nil {
		return from, err
	}
	defer s.log.release()
	w := newWalker(s, file, from, s.size.Load(), r.log.options.MaxFrameBytes, scanChunk)
	defer w.free()
	for {
		p := w.at
		f, err := w.verified()
		if err == io.EOF {
			return w.at, nil
		}
		if err != nil {
			return w.at, err
		}
		r.result.Frames++
		r.result.Bytes += int64(f.size)
		if each != nil {
			each(p, &f)
		}
	}
}

// verifySealed verifies sealed segments from the checkpoint on.
func (r *recovery) verifySealed() error {
	for i := r.from; i < len(r.segments)-1; i++ {
		s, at := r.segments[i], r.segments[i].header.start()
		if slices.Contains(r.rebuild, s) {
			continue // verified when its summary was found missing
		}
		if i == r.from {
			at = r.fromAt
		}
		end, err := r.scan(s, at, nil)
		if err != nil {
			return err
		}
		if end != s.end {
			return s.damage(end.pos, end.offset, fmt.Sprintf("ends with %+v, but was sealed with %+v", end, s.end))
		}
	}
	return nil
}

// verifyActive verifies the last segment and decides about an invalid byte in it.
func (r *recovery) verifyActive() error {
	i := len(r.segments) - 1
	s := r.segments[i]
	at, entries := s.header.start(), 0
	if i == r.from {
		at = r.fromAt
		if at.index > s.header.firstIndex {
			entries = r.states[0].entries
		}
	}
	loaded, err := s.index.load(entries)
	if err == nil && !loaded {
		entries = 0
		_, err = s.index.load(0)
	}
	if entries == 0 {
		at = s.header.start() // the index wants to know all frames
	}
	if err != nil {
		return err
	}
	var invalid *CorruptionError
	r.end, err = r.scan(s, at, func(p place, f *frame) {
		s.index.note(p, f)
		r.log.mu.recent.add(p.index, []recentFrame{{base: f.base, next: f.next, segment: s.header.base,
			pos: uint32(p.pos), size: uint32(f.size), term: uint32(f.term), kind: f.kind}})
	})
	if err != nil && !errors.As(err, &invalid) {
		return err
	}
	if mark := r.mark(); invalid == nil && r.end.index-1 < mark {
		if r.torn != nil {
			return &CorruptionError{File: r.torn.path, Offset: r.torn.base, Reason: fmt.Sprintf(
				"no header, but entries up to index %d were durable, and the segments before end with %d", mark, r.end.index-1)}
		}
		invalid = s.damage(r.end.pos, r.end.offset, "the file ends")
	}
	if invalid == nil && r.torn != nil && r.torn.base != r.end.offset {
		invalid = s.damage(r.end.pos, r.end.offset, fmt.Sprintf("the file ends, but the next segment was begun at offset %d", r.torn.base))
	}
	if invalid == nil {
		return nil
	}
	return r.judge(s, invalid)
}

// mark is the last index known to have been durable.
func (r *recovery) mark() uint64 {
	if len(r.states) > 0 {
		return max(r.hints.DurableIndex, r.states[0].Index)
	}
	return r.hints.DurableIndex
}

// judge tells damage from a torn tail, with the first invalid byte of the last
// segment found.
func (r *recovery) judge(s *segment, invalid *CorruptionError) error {
	if mark := r.mark(); r.end.index <= mark {
		invalid.Reason += fmt.Sprintf("; entries up to index %d were durable, this is %d", mark, r.end.index)
		return invalid
	}
	if r.torn != nil {
		invalid.Reason += "; the segment was complete before the next one was begun"
		return invalid
	}
	if !r.log.options.LossyTail {
		pos, err := r.findFrame(s, r.end.pos+r.log.options.MaxUnsyncedBytes)
		if err != nil {
			return err
		}
		if pos >= 0 {
			invalid.Reason += fmt.Sprintf("; a frame at byte %d was written after this was durable", pos)
			return invalid
		}
	}
	r.result.CutFile, r.result.CutPos, r.result.CutReason = invalid.File, invalid.Pos, invalid.Reason
	r.result.CutBytes = r.fileSize - r.end.pos
	return nil
}

// findFrame looks for a valid frame of this log at any byte from pos on, and
// returns its position or -1. It bounds the bytes it hashes: what looks so much
// like frames that the bound is reached is taken for one.
func (r *recovery) findFrame(s *segment, pos int64) (int64, error) {
	budget := int64(4 * DefaultMaxFrameBytes)
	file, err := s.log.acquire()
	if err != nil {
		return -1, err
	}
	defer s.log.release()
	window := make([]byte, scanChunk)
	for ; pos < r.fileSize; pos += scanChunk - headSize {
		n, err := file.ReadAt(window, pos)
		if err != nil && err != io.EOF {
			return -1, err
		}
		for i := 0; i+minFrameSize <= n && i < scanChunk-headSize; i++ {
			if m := window[i+16]; m != internalMagic && m != batch.Magic {
				continue
			}
			at := pos + int64(i)
			f, err := decodeHead(window[i:min(i+headSize, n)], r.log.options.MaxFrameBytes)
			if err != nil || f.base < r.end.offset || f.term < r.end.term || at+int64(f.size) > r.fileSize {
				continue
			}
			if budget -= int64(f.size); budget < 0 {
				return at, nil
			}
			b := make([]byte, f.size)
			if err := readFull(file, b, at); err != nil {
				return -1, err
			}
			if f.checkBody(b) == nil {
				return at, nil
			}
		}
	}
	return -1, nil
}
