package segment

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/billetlog/billet/internal/vfs"
)

// Replayer tells where the files of a replica are.
type Replayer interface {
	// Resolve returns the folder of that generation's segments, or, for a slot, of the replica. ok is false when there is no such
	// replica or generation any more: its records are skipped. It is called by one goroutine, and for slots first: when it is asked for
	// a generation, all slot files are as new as the journal can make them.
	Resolve(k Key, generation uint64, slot bool) (dir string, ok bool)
}

// ReplayStats says what OpenJournal found and did.
type ReplayStats struct {
	Created bool // there was no journal
	Clean   bool // closed in order: nothing to replay
	Groups  int  // blocks with records that counted
	Records int  // in them
	Bytes   int64
	Written int // records written to their files
	Fenced  int // dropped: a fence came later
	Gone    int // dropped: replica, generation or file no longer there
	Newer   int // dropped: the slot file had a newer image
	Kept    int // dropped: of replicas that were safe already when the journal went off before
	Files   int // files synced
	// Failed has the replicas to which something could not be written. Their records stay in the journal for the next open, and this one
	// is off: Commit returns ErrJournalOff. All other replicas are complete.
	Failed map[Key]error
}

// OpenJournal opens the journal, or makes it when it is missing. All that it promised to keep is then written to the replicas' files and
// synced there, so no replica may be open yet. A crash meanwhile does no harm; the next open does it again.
//
// Damage in the journal is a *CorruptionError, and nothing was written anywhere. See ReplayStats.Failed for trouble with single replicas.
func OpenJournal(o JournalOptions, r Replayer) (*Journal, ReplayStats, error) {
	o.ensureDefaults()
	if err := o.validate(); err != nil {
		return nil, ReplayStats{}, err
	}
	file, err := o.FS.Open(o.Path)
	if errors.Is(err, fs.ErrNotExist) {
		header := journalHeader{generation: 1, seq: 1, half: o.HalfBytes, nonce: rand.Uint64()}
		if file, err = createJournal(&o, &header); err != nil {
			return nil, ReplayStats{}, err
		}
		return startJournal(&o, file, header, 0), ReplayStats{Created: true}, nil
	}
	if err != nil {
		return nil, ReplayStats{}, err
	}
	j, stats, err := reopenJournal(&o, file, r)
	if err != nil {
		_ = file.Close()
	}
	return j, stats, err
}

// startJournal starts the goroutine.
func startJournal(o *JournalOptions, file vfs.File, header journalHeader, headerAt int) *Journal {
	j := newJournal(o, file, header, headerAt)
	go j.run()
	return j
}

// createJournal makes the file, or replaces it. It has its name only when all of it is written: overwriting written blocks is what makes
// its syncs fast.
func createJournal(o *JournalOptions, header *journalHeader) (vfs.File, error) {
	temp := o.Path + ".tmp"
	if err := o.FS.RemoveAll(temp); err != nil {
		return nil, err
	}
	file, err := o.FS.Create(temp)
	if err != nil {
		return nil, err
	}
	err = fillJournal(file, header)
	if err == nil {
		err = o.FS.Rename(temp, o.Path)
	}
	if err == nil {
		err = o.FS.SyncDir(filepath.Dir(o.Path))
	}
	if err != nil {
		_ = file.Close()
		_ = o.FS.RemoveAll(temp)
		return nil, err
	}
	return file, nil
}

// fillJournal writes an empty journal and syncs it.
func fillJournal(file vfs.File, header *journalHeader) error {
	size := journalHalvesStart + 2*header.half
	if err := file.Preallocate(0, size); err != nil {
		return err
	}
	head := appendJournalHeader(nil, header)
	head = append(head, head...)
	if _, err := file.WriteAt(head, 0); err != nil {
		return err
	}
	zeros := make([]byte, min(1<<20, 2*header.half))
	for pos := int64(journalHalvesStart); pos < size; pos += int64(len(zeros)) {
		if _, err := file.WriteAt(zeros[:min(int64(len(zeros)), size-pos)], pos); err != nil {
			return err
		}
	}
	return file.SyncData()
}

// reopenJournal replays what counts and begins the next generation. It closes file only where another one takes its place.
func reopenJournal(o *JournalOptions, file vfs.File, r Replayer) (*Journal, ReplayStats, error) {
	header, headerAt, err := readJournalHeader(file, o.Path)
	if err != nil {
		return nil, ReplayStats{}, err
	}
	size, err := file.Size()
	if err != nil {
		return nil, ReplayStats{}, err
	}
	var stats ReplayStats
	want := journalHalvesStart + 2*header.half
	if header.clean {
		stats.Clean = true
	} else {
		if size != want {
			return nil, stats, &CorruptionError{File: o.Path, Pos: min(size, want), Offset: -1,
				Reason: fmt.Sprintf("journal of %d bytes, expected %d", size, want)}
		}
		if err := replayJournal(o, file, &header, r, &stats); err != nil {
			return nil, stats, err
		}
	}
	if len(stats.Failed) > 0 {
		return bypassJournal(o, file, header, headerAt, &stats), stats, nil
	}
	next := journalHeader{generation: header.generation + 1, seq: header.seq + 1, half: o.HalfBytes, nonce: rand.Uint64()}
	if header.half != o.HalfBytes || size != want {
		renewed, err := createJournal(o, &next)
		if err != nil {
			return nil, stats, err
		}
		_ = file.Close()
		return startJournal(o, renewed, next, 0), stats, nil
	}
	j := newJournal(o, file, header, headerAt)
	if err := j.writeHeader(next); err != nil {
		return nil, stats, err
	}
	go j.run()
	return j, stats, nil
}

// bypassJournal returns a journal that is off and keeps the records of the replicas that failed.
func bypassJournal(o *JournalOptions, file vfs.File, header journalHeader, headerAt int, stats *ReplayStats) *Journal {
	j := newJournal(o, file, header, headerAt)
	for k, err := range stats.Failed {
		j.mu.failed[k] = err
	}
	j.mu.off = fmt.Errorf("%w: replay to %d replicas failed", ErrJournalOff, len(stats.Failed))
	j.settle()
	go j.run()
	return j
}

// readJournalHeader returns the newest header and its place.
func readJournalHeader(file vfs.File, path string) (journalHeader, int, error) {
	buf := make([]byte, journalHalvesStart)
	if n, err := file.ReadAt(buf, 0); err != nil && err != io.EOF {
		return journalHeader{}, 0, err
	} else if err == io.EOF {
		buf = buf[:n]
	}
	var best journalHeader
	at := -1
	for place := range 2 {
		h, ok, err := decodeJournalHeader(buf[min(len(buf), place*journalHeaderSize):])
		if err != nil {
			return journalHeader{}, 0, fmt.Errorf("%s: %w", path, err)
		}
		if ok && (at < 0 || h.seq > best.seq) {
			best, at = h, place
		}
	}
	if at < 0 {
		return best, 0, &CorruptionError{File: path, Pos: 0, Offset: -1, Reason: "both headers of the journal are invalid"}
	}
	return best, at, nil
}

// replayJournal writes the records that count to their files and syncs these.
func replayJournal(o *JournalOptions, file vfs.File, header *journalHeader, r Replayer, stats *ReplayStats) error {
	scan := journalScan{file: file, path: o.Path, header: header}
	blocks, err := scan.blocks()
	if err != nil {
		return err
	}
	plan := journalPlan{scan: &scan, fs: o.FS, parallel: o.CheckpointParallel, stats: stats, targets: map[journalTargetID]*journalTarget{}}
	for i := range blocks {
		if err := plan.read(&blocks[i]); err != nil {
			return err
		}
	}
	plan.apply(r, true)
	plan.apply(r, false)
	return nil
}

// journalTargetID names a file that is written to in replay.
type journalTargetID struct {
	key        Key
	generation uint64
	slot       bool
	base       uint64
}

// journalTarget is such a file and what is to be written.
type journalTarget struct {
	journalTargetID
	writes []journalWrite
	path   string
}

// journalWrite says where in the journal the bytes of a record are.
type journalWrite struct {
	block *journalPlace
	from  int // in the block's payload
	size  int
	pos   int64 // in the target
}

// journalPlan is what is to be written where.
type journalPlan struct {
	scan     *journalScan
	fs       vfs.FS
	parallel int
	stats    *ReplayStats
	targets  map[journalTargetID]*journalTarget
	order    []*journalTarget

	mu sync.Mutex // guards stats while targets are written
}

// read adds the records of a block.
func (p *journalPlan) read(place *journalPlace) error {
	ok, _, err := p.scan.block(&place.journalBlock, place.pos)
	if err != nil {
		return err
	}
	if !ok {
		return p.scan.damaged(place.pos, "block %d changed between two reads", place.seq)
	}
	payload := p.scan.payload[:place.length]
	if place.count > 0 {
		p.stats.Groups++
	}
	at := journalBlockHeader
	for range place.count {
		r, err := decodeJournalRecord(payload[at:])
		if err != nil {
			return p.scan.damaged(place.pos, "block %d: %v", place.seq, err)
		}
		p.stats.Records++
		p.stats.Bytes += int64(r.size)
		p.add(&r, journalWrite{block: place, from: at + journalRecordHeader, size: r.size, pos: r.pos})
		at += journalRecordHeader + r.size
	}
	if at != place.length {
		return p.scan.damaged(place.pos, "block %d has %d bytes behind its records", place.seq, place.length-at)
	}
	return nil
}

func (p *journalPlan) add(r *journalRecord, w journalWrite) {
	if kept := p.scan.header.kept; len(kept) > 0 && !containsKey(kept, r.key) {
		p.stats.Kept++
		return
	}
	if r.kind == journalFence {
		for _, t := range p.order {
			if t.key == r.key && !t.slot {
				p.stats.Fenced += len(t.writes)
				t.writes = t.writes[:0]
			}
		}
		return
	}
	id := journalTargetID{key: r.key, generation: r.generation, base: r.base}
	if r.kind == journalSlot {
		id = journalTargetID{key: r.key, slot: true}
	}
	t := p.targets[id]
	if t == nil {
		t = &journalTarget{journalTargetID: id}
		p.targets[id] = t
		p.order = append(p.order, t)
	}
	t.writes = append(t.writes, w)
}

// apply writes all slots, or all segments.
func (p *journalPlan) apply(r Replayer, slots bool) {
	var targets []*journalTarget
	for _, t := range p.order {
		if t.slot != slots || len(t.writes) == 0 {
			continue
		}
		dir, ok := r.Resolve(t.key, t.generation, t.slot)
		if !ok {
			p.stats.Gone += len(t.writes)
			continue
		}
		t.path = filepath.Join(dir, SlotFileName)
		if !t.slot {
			t.path = filepath.Join(dir, formatJournalFile(t.base))
		}
		targets = append(targets, t)
	}
	var next atomic.Int64
	work := func() {
		for i := next.Add(1) - 1; i < int64(len(targets)); i = next.Add(1) - 1 {
			p.write(targets[i])
		}
	}
	var workers sync.WaitGroup
	for range min(p.parallel, len(targets)) - 1 {
		workers.Go(work)
	}
	work()
	workers.Wait()
}

// write brings one target up to date and syncs it, also when nothing was to be written: what is in it need not be durable yet.
func (p *journalPlan) write(t *journalTarget) {
	var written, newer int
	file, err := p.fs.Open(t.path)
	gone := errors.Is(err, fs.ErrNotExist)
	if err == nil {
		written, newer, err = p.writeAll(file, t)
		if err == nil {
			err = file.SyncData()
		}
		if closeErr := file.Close(); err == nil {
			err = closeErr
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case gone:
		p.stats.Gone += len(t.writes)
	case err != nil:
		if p.stats.Failed == nil {
			p.stats.Failed = map[Key]error{}
		}
		p.stats.Failed[t.key] = errors.Join(p.stats.Failed[t.key], fmt.Errorf("replaying to %s: %w", t.path, err))
	default:
		p.stats.Files++
		p.stats.Written += written
		p.stats.Newer += newer
	}
}

func (p *journalPlan) writeAll(file vfs.File, t *journalTarget) (written, newer int, err error) {
	var sectors, data []byte
	for _, w := range t.writes {
		sectors, data, err = p.fetch(&w, sectors, data)
		if err != nil {
			return written, newer, err
		}
		if !t.slot {
			if _, err := file.WriteAt(data, w.pos); err != nil {
				return written, newer, err
			}
			written++
			continue
		}
		done, err := redoSlot(file, t.path, w.pos, data)
		if err != nil {
			return written, newer, err
		}
		if done {
			written++
		} else {
			newer++
		}
	}
	return written, newer, nil
}

// fetch reads a record's bytes from the journal, using the space of both buffers.
func (p *journalPlan) fetch(w *journalWrite, sectors, data []byte) (_, _ []byte, err error) {
	first := w.from / sectorPayload
	n := sectorsFor(w.from%sectorPayload + w.size)
	if cap(sectors) < n {
		sectors = make([]byte, n)
	}
	sectors = sectors[:n]
	pos := w.block.pos + int64(first)*sectorSize
	if got, err := p.scan.file.ReadAt(sectors, pos); err != nil && !(err == io.EOF && got == n) {
		return sectors, data, err
	}
	for at := 0; at < n; at += sectorSize {
		if !sectorWritten(sectors[at:][:sectorSize]) {
			return sectors, data, p.scan.damaged(pos+int64(at), "block %d changed between two reads", w.block.seq)
		}
	}
	data = gatherSectors(data[:0], sectors)
	return sectors, data[w.from%sectorPayload:][:w.size], nil
}

func compareKeys(a, b Key) int {
	return cmp.Or(cmp.Compare(a.Shard, b.Shard), cmp.Compare(a.Replica, b.Replica))
}

func containsKey(keys []Key, k Key) bool {
	for _, have := range keys {
		if have == k {
			return true
		}
	}
	return false
}
