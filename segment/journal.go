package segment

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/billetlog/billet/internal/vfs"
)

// Errors of the journal to branch on.
var (
	// ErrJournalOff means that the journal writes nothing any more until it is opened again, because it or a replica's files failed.
	// What it acknowledged before is safe. The caller syncs its files itself.
	ErrJournalOff = errors.New("segment: journal is off")
	// ErrJournalTooLarge means that the writes do not fit one group. The caller syncs its files itself.
	ErrJournalTooLarge = errors.New("segment: too large for the journal")
)

// Defaults and bounds of JournalOptions.
const (
	DefaultJournalHalfBytes   = 32 << 20
	DefaultCheckpointParallel = 8
	MaxCheckpointParallel     = 1024
	// JournalGroupMax is the most bytes of one group, and so of one Commit. Two groups are in memory at most.
	JournalGroupMax = 8 << 20

	journalHalfMin = 4 << 10
	journalHalfMax = 512 << 20
)

// JournalOptions say where the journal is and how large. Path is required.
type JournalOptions struct {
	FS   vfs.FS // default vfs.OS
	Path string // of the file; made, with HalfBytes twice of zeros, when missing
	// HalfBytes is the size of each of the two halves. Default DefaultJournalHalfBytes, at least 4 KiB (1 MiB or more makes sense), at
	// most 512 MiB, a multiple of 512. When one is full, the replicas with records in it are synced while the other one is filled; a
	// small half makes writers wait for that, a large one makes replay after a crash longer. A change takes effect at the next open.
	HalfBytes int64
	// CheckpointParallel is how many replicas are synced at once. Default DefaultCheckpointParallel.
	CheckpointParallel int
	Logger             *slog.Logger // default: nobody
}

func (o *JournalOptions) ensureDefaults() {
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.HalfBytes == 0 {
		o.HalfBytes = DefaultJournalHalfBytes
	}
	if o.CheckpointParallel == 0 {
		o.CheckpointParallel = DefaultCheckpointParallel
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

func (o *JournalOptions) validate() error {
	switch {
	case o.Path == "":
		return errors.New("segment: JournalOptions.Path is required")
	case o.HalfBytes < journalHalfMin || o.HalfBytes > journalHalfMax || o.HalfBytes%sectorSize != 0:
		return fmt.Errorf("segment: HalfBytes %d is not in [%d, %d] or no multiple of %d", o.HalfBytes, journalHalfMin, journalHalfMax, sectorSize)
	case o.CheckpointParallel < 1 || o.CheckpointParallel > MaxCheckpointParallel:
		return fmt.Errorf("segment: CheckpointParallel %d is not in [1, %d]", o.CheckpointParallel, MaxCheckpointParallel)
	}
	return nil
}

// JournalStats are counts since the journal was opened.
type JournalStats struct {
	Groups      uint64        // durable group writes with records
	Records     uint64        // in them
	Bytes       uint64        // written to the halves
	Syncs       uint64        // of the journal file
	Checkpoints uint64        // halves whose replicas were synced
	Stalls      uint64        // times a writer waited for a checkpoint
	Stall       time.Duration // in all
	Off         error         // why it is off; nil when it is not
}

// Journal is the node-wide redo log: one file of fixed size with two halves, filled in turn. Many replicas that wait for durability at
// the same time share one write and one fdatasync. All methods are safe for concurrent use.
//
// Who finds no write in progress leads: it writes its records at once, on its own goroutine. Who comes meanwhile joins the next group,
// of which the first becomes the leader as soon as the write is done. Group N is durable before group N+1 is written.
//
// When a half is full, the other one is taken, and the replicas with records in the full one are synced ([Syncer]) by the journal's
// goroutine; not before all of them are is the half used again.
//
// A failed write or sync of the journal turns it off for good, as does a replica whose sync fails: its records must stay for the next
// replay. In both cases all replicas with records are synced; then the header says that nothing in the halves counts any more, but for
// the records of those that failed.
//
// Lock order: the lead (mu.leading), checkpoint, mu. mu is never held during I/O.
type Journal struct {
	fs       vfs.FS
	file     vfs.File
	path     string
	half     int64
	groupMax int // payload bytes of one block
	parallel int
	logger   *slog.Logger

	// lead is touched by the leader only.
	lead struct {
		header     journalHeader // last one written
		headerAt   int           // place of it that is known to be right
		half       int           // active half
		pos        int64         // in it, of the next block
		seq        uint64        // of the last block
		payload    []byte        // of blocks without records
		sectors    []byte        // what is written
		headerPart []byte
	}

	// checkpoint is held while replicas are synced to free a half.
	checkpoint sync.Mutex

	mu struct {
		sync.Mutex
		leading   bool // somebody writes, or has the lead for another reason
		filling   *journalGroup
		writing   *journalGroup // nil: spare is free
		spare     *journalGroup
		exclusive []chan struct{} // who waits for the lead without a group, oldest first
		halves    [2]journalHalf
		firstSeq  uint64 // of the active half
		keep      uint64 // lowest sequence that is not checkpointed
		syncing   map[Key]int
		failed    map[Key]error // replicas whose records must be kept
		off       error
		closed    bool
		stats     JournalStats
	}
	changed sync.Cond // on mu: room in the group, a half free, off, closed, a sync finished

	kick    chan struct{} // there may be work for the goroutine
	quit    chan struct{}
	done    chan struct{} // the goroutine has ended
	settled chan struct{} // closed when the journal is off and has been settled once
	// settleErr, under mu, says why replay of what is in the file may still happen.
	settleErr error
}

// journalHalf is what is known of one half.
type journalHalf struct {
	dirty  map[journalFiles]Syncer // whose records are not checkpointed
	sealed bool                    // full, waits for its checkpoint
}

// journalGroup collects what becomes one block.
type journalGroup struct {
	payload []byte // room for the head, records
	records int
	members int
	dirty   []journalDirty
	turn    chan struct{}   // gives the first member the lead, when it did not have it at once
	outcome *journalOutcome // for all other members
}

// journalFiles are the files that one syncer makes durable: a replica's segments, or its slot file.
type journalFiles struct {
	key  Key
	slot bool
}

type journalDirty struct {
	journalFiles
	syncer Syncer // nil when the replica was forgotten meanwhile
}

// journalOutcome outlives its group, which is used again at once.
type journalOutcome struct {
	done chan struct{}
	err  error
}

func newJournalGroup() *journalGroup {
	return &journalGroup{payload: make([]byte, journalBlockHeader, 4<<10), turn: make(chan struct{}, 1)}
}

// journalBufferKept is the most a buffer may hold to be used again; larger ones come with rare groups.
const journalBufferKept = 1 << 20

func (g *journalGroup) reset() {
	if cap(g.payload) > journalBufferKept {
		g.payload = make([]byte, journalBlockHeader, 4<<10)
	}
	clear(g.dirty)
	*g = journalGroup{payload: g.payload[:journalBlockHeader], dirty: g.dirty[:0], turn: g.turn}
}

func newJournal(o *JournalOptions, file vfs.File, header journalHeader, headerAt int) *Journal {
	j := &Journal{
		fs:       o.FS,
		file:     file,
		path:     o.Path,
		half:     header.half,
		parallel: o.CheckpointParallel,
		logger:   o.Logger,
		kick:     make(chan struct{}, 1),
		quit:     make(chan struct{}),
		done:     make(chan struct{}),
		settled:  make(chan struct{}),
	}
	// A half keeps one sector for the block that leads to the other one.
	j.groupMax = min(JournalGroupMax, int((j.half-sectorSize)/sectorSize*sectorPayload))
	j.lead.header = header
	j.lead.headerAt = headerAt
	j.lead.payload = make([]byte, journalBlockHeader)
	j.mu.filling = newJournalGroup()
	j.mu.spare = newJournalGroup()
	j.mu.halves[0].dirty = map[journalFiles]Syncer{}
	j.mu.halves[1].dirty = map[journalFiles]Syncer{}
	j.mu.firstSeq = 1
	j.mu.keep = 1
	j.mu.syncing = map[Key]int{}
	j.mu.failed = map[Key]error{}
	j.changed.L = &j.mu
	return j
}

// Commit makes ws durable: when it returns nil, replay after a crash will write them again. The bytes must have been written to their
// files before, since from then on syncers[i].SyncJournaled must cover ws[i]. It keeps neither ws nor their buffers.
//
// A replica has one syncer for its segments and one for its slot file, which may be the same. A new one takes the place of the last one,
// so it must cover what that one covered, or that have been synced.
//
// A syncer whose replica had a failed write or sync must return an error from then on, and never try again: the bytes that this sync
// lost are in the journal only, which keeps them for the next open when it is told.
//
// It may wait for checkpoints, so the caller must not hold a lock that SyncJournaled of any replica takes.
//
// On ErrJournalOff, ErrJournalTooLarge and every other error nothing is promised and the caller syncs its files itself.
func (j *Journal) Commit(ws []Write, syncers []Syncer) error {
	if len(ws) != len(syncers) {
		return fmt.Errorf("segment: journal commit of %d writes with %d syncers", len(ws), len(syncers))
	}
	size := 0
	for i := range ws {
		if err := checkJournalWrite(&ws[i], syncers[i]); err != nil {
			return err
		}
		if size += journalRecordHeader + ws[i].Size; size > j.groupMax-journalBlockHeader {
			return fmt.Errorf("%w: more than %d bytes", ErrJournalTooLarge, j.groupMax)
		}
	}
	if len(ws) == 0 {
		return nil
	}
	g, err := j.enter(size)
	if err != nil {
		return err
	}
	for i := range ws {
		g.add(&ws[i], syncers[i])
	}
	return j.join(g)
}

// checkJournalWrite refuses what could not be replayed.
func checkJournalWrite(w *Write, s Syncer) error {
	size := 0
	for _, d := range w.Data {
		size += len(d)
	}
	_, segment := parseJournalFile(w.File)
	switch {
	case s == nil:
		return errors.New("segment: journal commit without a syncer")
	case size != w.Size || w.Pos < 0:
		return fmt.Errorf("segment: journal commit of %d bytes at %d said to be %d", size, w.Pos, w.Size)
	case w.Slot && w.File != SlotFileName, !w.Slot && !segment:
		return fmt.Errorf("segment: journal commit for file %q", w.File)
	}
	return nil
}

func (g *journalGroup) add(w *Write, s Syncer) {
	r := journalRecord{kind: journalData, size: w.Size, key: w.Key, generation: w.Generation, pos: w.Pos}
	if w.Slot {
		r.kind = journalSlot
	} else {
		r.base, _ = parseJournalFile(w.File)
	}
	g.payload = appendJournalRecord(g.payload, &r, w.Data)
	g.records++
	files := journalFiles{w.Key, w.Slot}
	if n := len(g.dirty); n > 0 && g.dirty[n-1].journalFiles == files {
		g.dirty[n-1].syncer = s
		return
	}
	g.dirty = append(g.dirty, journalDirty{files, s})
}

// Fence makes durable that no data record of the replica written so far is ever replayed; slot records stay, as their order is in them.
// It is called with the segments synced, before bytes at a position change. nil also when the journal is off but its halves no longer
// count for this replica; on an error, do not change them. What Commit says of locks holds here too.
func (j *Journal) Fence(k Key) error {
	g, err := j.enter(journalRecordHeader)
	if err == nil {
		g.payload = appendJournalRecord(g.payload, &journalRecord{kind: journalFence, key: k}, nil)
		g.records++
		err = j.join(g)
	}
	if !errors.Is(err, ErrJournalOff) {
		return err
	}
	<-j.settled
	j.acquire()
	j.settle() // a disk that was full or failed for a while may work again
	j.release()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.settleErr != nil {
		return fmt.Errorf("%w: records of replica %v can still be replayed: %w", ErrJournalOff, k, j.settleErr)
	}
	if failed := j.mu.failed[k]; failed != nil {
		return fmt.Errorf("%w: records of replica %v are kept: %w", ErrJournalOff, k, failed)
	}
	return nil
}

// Forget says that the replica is gone or closed. When it returns, SyncJournaled of it is not running and will not be called. It waits
// for one that is, so the caller must not hold a lock that takes.
func (j *Journal) Forget(k Key) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, g := range [...]*journalGroup{j.mu.filling, j.mu.writing} {
		if g == nil {
			continue
		}
		for i := range g.dirty {
			if g.dirty[i].key == k {
				g.dirty[i].syncer = nil
			}
		}
	}
	for i := range j.mu.halves {
		delete(j.mu.halves[i].dirty, journalFiles{k, false})
		delete(j.mu.halves[i].dirty, journalFiles{k, true})
	}
	for j.mu.syncing[k] > 0 {
		j.changed.Wait()
	}
}

// Stats returns the counts so far.
func (j *Journal) Stats() JournalStats {
	j.mu.Lock()
	defer j.mu.Unlock()
	s := j.mu.stats
	s.Off = j.mu.off
	return s
}

// enter returns, with mu held, the group being filled, when size bytes fit.
func (j *Journal) enter(size int) (*journalGroup, error) {
	j.mu.Lock()
	for {
		switch {
		case j.mu.closed:
			j.mu.Unlock()
			return nil, fmt.Errorf("%w: journal", ErrClosed)
		case j.mu.off != nil:
			err := j.mu.off
			j.mu.Unlock()
			return nil, err
		case len(j.mu.filling.payload)+size <= j.groupMax:
			return j.mu.filling, nil
		}
		j.changed.Wait()
	}
}

// join takes mu, with the caller's records in g, gives it back, and returns when g is durable or failed.
func (j *Journal) join(g *journalGroup) error {
	g.members++
	if !j.mu.leading {
		j.mu.leading = true
		j.takeLocked(g)
		j.mu.Unlock()
		return j.writeGroup(g)
	}
	if g.members == 1 {
		j.mu.Unlock()
		<-g.turn
		j.mu.Lock()
		j.takeLocked(g)
		j.mu.Unlock()
		return j.writeGroup(g)
	}
	if g.outcome == nil {
		g.outcome = &journalOutcome{done: make(chan struct{})}
	}
	outcome := g.outcome
	j.mu.Unlock()
	<-outcome.done
	return outcome.err
}

// takeLocked closes g to more records and lets the next group fill.
func (j *Journal) takeLocked(g *journalGroup) {
	j.mu.filling, j.mu.writing, j.mu.spare = j.mu.spare, g, nil
	j.changed.Broadcast()
}

// writeGroup makes g durable, tells its members, and hands the lead on.
func (j *Journal) writeGroup(g *journalGroup) error {
	err := j.writeRecords(g)
	j.mu.Lock()
	if err == nil {
		j.mu.stats.Groups++
		j.mu.stats.Records += uint64(g.records)
	}
	outcome := g.outcome
	g.reset()
	j.mu.writing, j.mu.spare = nil, g
	j.releaseLocked()
	j.mu.Unlock()
	if outcome != nil {
		outcome.err = err
		close(outcome.done)
	}
	return err
}

// acquire takes the lead for something else than a group. It goes before the group that is being filled.
func (j *Journal) acquire() {
	j.mu.Lock()
	if !j.mu.leading {
		j.mu.leading = true
		j.mu.Unlock()
		return
	}
	turn := make(chan struct{}, 1)
	j.mu.exclusive = append(j.mu.exclusive, turn)
	j.mu.Unlock()
	<-turn
}

func (j *Journal) release() {
	j.mu.Lock()
	j.releaseLocked()
	j.mu.Unlock()
}

// releaseLocked gives the lead to the next one, if there is one.
func (j *Journal) releaseLocked() {
	switch {
	case len(j.mu.exclusive) > 0:
		turn := j.mu.exclusive[0]
		j.mu.exclusive = j.mu.exclusive[1:]
		turn <- struct{}{}
	case j.mu.filling.members > 0:
		j.mu.filling.turn <- struct{}{}
	default:
		j.mu.leading = false
	}
}

// writeRecords writes g as a block. The caller leads.
func (j *Journal) writeRecords(g *journalGroup) error {
	j.mu.Lock()
	err := j.mu.off
	if err == nil && j.mu.closed {
		err = fmt.Errorf("%w: journal", ErrClosed)
	}
	j.mu.Unlock()
	if err != nil {
		return err
	}
	if j.lead.pos+int64(sectorsFor(len(g.payload))) > j.half-sectorSize {
		if err := j.switchHalf(); err != nil {
			return err
		}
	}
	j.mu.Lock()
	dirty := j.mu.halves[j.lead.half].dirty
	for _, d := range g.dirty {
		if d.syncer != nil {
			dirty[d.journalFiles] = d.syncer
		}
	}
	j.mu.Unlock()
	return j.writeBlock(g.payload, g.records, false)
}

// writeBlock makes payload durable as the next block, for which there is room. The caller leads. An error turns the journal off.
func (j *Journal) writeBlock(payload []byte, records int, seal bool) error {
	j.mu.Lock()
	keep := j.mu.keep
	j.mu.Unlock()
	finishJournalBlock(payload, &journalBlock{
		generation: j.lead.header.generation,
		nonce:      j.lead.header.nonce,
		seq:        j.lead.seq + 1,
		keep:       keep,
		count:      records,
		seal:       seal,
	})
	if cap(j.lead.sectors) > 2*journalBufferKept {
		j.lead.sectors = nil
	}
	j.lead.sectors = appendSectors(j.lead.sectors[:0], payload)
	_, err := j.file.WriteAt(j.lead.sectors, j.halfStart(j.lead.half)+j.lead.pos)
	if err == nil {
		err = j.file.SyncData()
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.mu.stats.Syncs++
	if err != nil {
		return j.turnOffLocked(fmt.Errorf("writing %s: %w", j.path, err))
	}
	j.mu.stats.Bytes += uint64(len(j.lead.sectors))
	j.lead.seq++
	j.lead.pos += int64(len(j.lead.sectors))
	return nil
}

func (j *Journal) halfStart(half int) int64 { return journalHalvesStart + int64(half)*j.half }

// switchHalf makes the other half the active one, when it is free, and has the full one checkpointed. The block that seals the full half
// says durably that the other one's records no longer count. The caller leads.
func (j *Journal) switchHalf() error {
	full, next := j.lead.half, 1-j.lead.half
	j.mu.Lock()
	if j.mu.halves[next].sealed && j.mu.off == nil {
		start := time.Now()
		for j.mu.halves[next].sealed && j.mu.off == nil {
			j.changed.Wait()
		}
		j.mu.stats.Stalls++
		j.mu.stats.Stall += time.Since(start)
	}
	err := j.mu.off
	j.mu.Unlock()
	if err != nil {
		return err
	}
	if err := j.writeBlock(j.lead.payload, 0, true); err != nil {
		return err
	}
	j.lead.half, j.lead.pos = next, 0
	j.mu.Lock()
	j.mu.halves[full].sealed = true
	j.mu.firstSeq = j.lead.seq + 1
	j.mu.Unlock()
	j.wake()
	return nil
}

// wake tells the goroutine that there may be work.
func (j *Journal) wake() {
	select {
	case j.kick <- struct{}{}:
	default:
	}
}
