package segment

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/billetlog/billet/internal/invariants"
)

// run is the journal's goroutine, started by OpenJournal and waited for by Close: it checkpoints sealed halves, and settles matters when
// the journal went off.
func (j *Journal) run() {
	defer close(j.done)
	for {
		select {
		case <-j.quit:
			return
		case <-j.kick:
		}
		j.checkpointSealed()
		j.mu.Lock()
		off := j.mu.off
		j.mu.Unlock()
		if off != nil {
			j.acquire()
			j.settle()
			j.release()
		}
	}
}

// checkpointSealed syncs the replicas of the sealed half, if there is one, and frees it.
func (j *Journal) checkpointSealed() {
	j.checkpoint.Lock()
	defer j.checkpoint.Unlock()
	j.mu.Lock()
	half := slices.IndexFunc(j.mu.halves[:], func(h journalHalf) bool { return h.sealed })
	if half < 0 || j.mu.off != nil {
		j.mu.Unlock()
		return
	}
	dirty := maps.Clone(j.mu.halves[half].dirty)
	j.mu.Unlock()
	ok := j.syncReplicas(dirty)
	j.mu.Lock()
	defer j.mu.Unlock()
	if ok {
		j.freeLocked(half)
		j.mu.keep = max(j.mu.keep, j.mu.firstSeq)
	}
}

// freeLocked notes that no record in the half is needed.
func (j *Journal) freeLocked(half int) {
	if h := &j.mu.halves[half]; h.sealed || len(h.dirty) > 0 {
		clear(h.dirty)
		h.sealed = false
		j.mu.stats.Checkpoints++
	}
	j.changed.Broadcast()
}

// syncReplicas calls SyncJournaled of all in dirty that are not forgotten meanwhile. A failure turns the journal off. It reports whether
// there was none.
func (j *Journal) syncReplicas(dirty map[journalFiles]Syncer) bool {
	all := slices.Collect(maps.Keys(dirty))
	var next, failures atomic.Int64
	work := func() {
		for i := next.Add(1) - 1; i < int64(len(all)); i = next.Add(1) - 1 {
			if !j.syncReplica(all[i], dirty[all[i]]) {
				failures.Add(1)
			}
		}
	}
	var workers sync.WaitGroup
	for range min(j.parallel, len(all)) - 1 {
		workers.Go(work)
	}
	work()
	workers.Wait()
	return failures.Load() == 0
}

// dirtyLocked tells whether the files have records that are not checkpointed. Those of a forgotten replica have none.
func (j *Journal) dirtyLocked(files journalFiles) bool {
	_, first := j.mu.halves[0].dirty[files]
	_, second := j.mu.halves[1].dirty[files]
	return first || second
}

func (j *Journal) syncReplica(files journalFiles, s Syncer) bool {
	k := files.key
	j.mu.Lock()
	if !j.dirtyLocked(files) {
		j.mu.Unlock()
		return true
	}
	j.mu.syncing[k]++
	j.mu.Unlock()

	err := s.SyncJournaled()

	j.mu.Lock()
	defer j.mu.Unlock()
	if j.mu.syncing[k]--; j.mu.syncing[k] == 0 {
		delete(j.mu.syncing, k)
	}
	j.changed.Broadcast()
	if err == nil || !j.dirtyLocked(files) {
		return true
	}
	j.mu.failed[k] = err
	_ = j.turnOffLocked(fmt.Errorf("replica %v: %w", k, err))
	return false
}

// turnOffLocked stops all writing, unless it is stopped already, and returns the reason that counts.
func (j *Journal) turnOffLocked(reason error) error {
	if j.mu.off == nil {
		j.mu.off = fmt.Errorf("%w: %w", ErrJournalOff, reason)
		j.changed.Broadcast()
		j.wake()
	}
	return j.mu.off
}

// Checkpoint syncs all replicas with records in the journal, after which none of the records is needed. Commits wait meanwhile. When the
// journal is off, it reports whether records are still needed.
func (j *Journal) Checkpoint() error {
	j.acquire()
	defer j.release()
	j.mu.Lock()
	closed := j.mu.closed
	j.mu.Unlock()
	if closed {
		return fmt.Errorf("%w: journal", ErrClosed)
	}
	if err := j.checkpointAll(); err != nil {
		return err
	}
	j.mu.Lock()
	off := j.mu.off
	j.mu.keep = j.lead.seq + 1
	j.mu.Unlock()
	if off != nil {
		return nil
	}
	// A block without records says so on disk.
	if j.lead.pos+sectorSize > j.half-sectorSize {
		return j.switchHalf()
	}
	return j.writeBlock(j.lead.payload, 0, false)
}

// checkpointAll makes all records unneeded, or settles what is left to be done when that fails or the journal is off. The caller leads.
func (j *Journal) checkpointAll() error {
	j.mu.Lock()
	off := j.mu.off
	j.mu.Unlock()
	if off == nil && j.syncAll() {
		return nil
	}
	j.settle()
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.settleErr == nil && len(j.mu.failed) == 0 {
		return nil
	}
	return errors.Join(j.mu.off, j.settleErr)
}

// syncAll syncs the replicas of both halves, but for those that failed before, and frees the halves if all is well.
func (j *Journal) syncAll() bool {
	j.checkpoint.Lock()
	defer j.checkpoint.Unlock()
	j.mu.Lock()
	dirty := maps.Clone(j.mu.halves[0].dirty)
	maps.Copy(dirty, j.mu.halves[1].dirty)
	maps.DeleteFunc(dirty, func(files journalFiles, _ Syncer) bool { return j.mu.failed[files.key] != nil })
	j.mu.Unlock()
	if !j.syncReplicas(dirty) {
		return false
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.freeLocked(0)
	j.freeLocked(1)
	return true
}

// settle is called once the journal is off: it makes all durable that only the journal has, and says in the header what of the journal
// still counts. The caller leads. A further call does nothing, but for trying the header again where that failed.
func (j *Journal) settle() {
	first := true
	select {
	case <-j.settled:
		first = false
	default:
		j.syncAll()
	}
	j.mu.Lock()
	off, failed, unsettled := j.mu.off, maps.Clone(j.mu.failed), first || j.settleErr != nil
	j.mu.Unlock()
	invariants.Check(off != nil, "journal settled while on")
	if !unsettled {
		return
	}
	err := j.writeKept(failed)
	j.mu.Lock()
	j.settleErr = err
	for i := range j.mu.halves {
		clear(j.mu.halves[i].dirty)
	}
	j.mu.Unlock()
	if first {
		close(j.settled)
		j.logger.Error("journal is off until the next open", "path", j.path, "reason", off, "failed replicas", len(failed), "header", err)
	}
}

// writeKept writes the header that lets only records of the failed replicas count; without any, it takes the file away if it cannot be
// written.
func (j *Journal) writeKept(failed map[Key]error) error {
	if len(failed) > journalKeptMax {
		return fmt.Errorf("%d replicas failed, the journal's header has room for %d", len(failed), journalKeptMax)
	}
	h := j.lead.header
	h.kept = slices.Collect(maps.Keys(failed))
	slices.SortFunc(h.kept, compareKeys)
	h.clean = len(failed) == 0
	err := j.writeHeader(h)
	if err == nil || len(failed) > 0 {
		return err
	}
	if removeErr := j.fs.Remove(j.path); removeErr != nil {
		return errors.Join(err, removeErr)
	}
	if syncErr := j.fs.SyncDir(filepath.Dir(j.path)); syncErr != nil {
		return errors.Join(err, syncErr)
	}
	return nil
}

// writeHeader makes h, with the next sequence, durable in both places. The caller leads.
func (j *Journal) writeHeader(h journalHeader) error {
	h.seq = j.lead.header.seq + 1
	j.lead.headerPart = appendJournalHeader(j.lead.headerPart[:0], &h)
	for _, place := range [...]int{1 - j.lead.headerAt, j.lead.headerAt} {
		if _, err := j.file.WriteAt(j.lead.headerPart, int64(place)*journalHeaderSize); err != nil {
			return err
		}
		if err := j.file.SyncData(); err != nil {
			return err
		}
	}
	j.lead.header = h
	return nil
}

// Close checkpoints all, notes in the file that nothing in it is needed, and ends the journal's goroutine. On an error the file says
// otherwise and the next open replays. Commits that wait or come later fail with ErrClosed, as does a second Close.
func (j *Journal) Close() error {
	j.mu.Lock()
	closed := j.mu.closed
	j.mu.closed = true
	j.changed.Broadcast()
	j.mu.Unlock()
	if closed {
		return fmt.Errorf("%w: journal", ErrClosed)
	}
	j.acquire()
	err := j.checkpointAll()
	j.mu.Lock()
	off := j.mu.off
	j.mu.Unlock()
	if err == nil && off == nil {
		h := j.lead.header
		h.clean = true
		err = j.writeHeader(h)
	}
	j.release()
	close(j.quit)
	<-j.done
	return errors.Join(err, j.file.Close())
}
