package replication

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/billetlog/billet/segment"
)

// The folder of the next generation is where an import goes. It stays when the import is cut off, so that the next one goes on from there; what was
// installed makes it the present generation, and older ones go.

// nextGeneration says where an import goes, and what of the present log it may take: what is committed is the same on all replicas.
func (p *Partition) nextGeneration() (o segment.Options, reuse *segment.Log, through uint64) {
	r := p.r
	r.mu.Lock()
	generation, id := r.mu.slot.Generation+1, r.mu.slot.Identity
	reuse, through = r.mu.log, min(r.mu.state.Commit, r.mu.log.LastIndex())
	r.mu.Unlock()
	return p.host.tuned(p, p.host.segmentOptions(r, generation, id)), reuse, through
}

// committed is the index up to which entries are known to be committed.
func (r *replica) committed() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.state.Commit
}

// stage tells the store that a complete log for the snapshot lies in the given generation's folder. It must stay as it is until Raft has installed it,
// or is known to be further.
func (r *replica) stage(index, term, generation uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.staged == nil {
		r.mu.staged = make(map[stagedKey]uint64)
	}
	r.mu.staged[stagedKey{index, term}] = generation
}

// unstage takes back what Raft was not told of.
func (r *replica) unstage(index, term uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.staged, stagedKey{index, term})
	r.settledLocked()
}

// settleStagedLocked forgets what Raft will not install any more: a snapshot that is not above what is committed is refused.
func (r *replica) settleStagedLocked() {
	before := len(r.mu.staged)
	for k := range r.mu.staged {
		if k.index <= r.mu.state.Commit {
			delete(r.mu.staged, k)
		}
	}
	if len(r.mu.staged) < before {
		r.settledLocked()
	}
}

// settledLocked wakes whoever waits for what is staged.
func (r *replica) settledLocked() {
	if r.mu.settled != nil {
		close(r.mu.settled)
		r.mu.settled = nil
	}
}

// stagedState tells whether something is staged, and what says that this has changed.
func (r *replica) stagedState() (pending bool, changed <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.latched.Load() {
		return false, nil, fmt.Errorf("%w: %w", ErrFailed, r.mu.cause)
	}
	if r.mu.settled == nil {
		r.mu.settled = make(chan struct{})
	}
	return len(r.mu.staged) > 0, r.mu.settled, nil
}

// awaitStaged waits until Raft has installed or refused what was staged; bound, when it is not 0, ends the wait besides ctx.
func (p *Partition) awaitStaged(ctx context.Context, bound time.Duration) error {
	if bound > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, bound, fmt.Errorf("%w: an earlier snapshot of %s waits for raft", ErrBusy, p.name()))
		defer cancel()
	}
	m := p.machine.Load()
	if m == nil {
		return fmt.Errorf("%w: %s does not run", ErrClosed, p.name())
	}
	for {
		pending, changed, err := p.r.stagedState()
		if err != nil || !pending {
			return err
		}
		select {
		case <-changed:
		case <-m.closed:
			return fmt.Errorf("%w: %s does not run any more", ErrClosed, p.name())
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// sweepGenerations deletes the folders of all generations but the present one and, if keepNext says so, the next. It returns whether there is a next
// one. Nobody may be importing.
func (p *Partition) sweepGenerations(keepNext bool) (next bool, err error) {
	r := p.r
	r.mu.Lock()
	present := r.mu.slot.Generation
	r.mu.Unlock()
	files := p.host.cfg.FS
	names, err := files.List(r.dir)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, name := range names {
		g, err := strconv.ParseUint(name, 10, 64)
		switch {
		case err != nil || g == present:
		case g == present+1 && keepNext:
			next = true
		default:
			errs = append(errs, files.RemoveAll(filepath.Join(r.dir, name)))
		}
	}
	return next, errors.Join(errs...)
}

// tidy deletes old generations after an install, and an import that nobody went on with.
func (p *Partition) tidy(now time.Time) {
	if !p.life.TryRLock() {
		return // being started or stopped
	}
	defer p.life.RUnlock()
	staged := p.intake.staged.Load()
	expired := staged != 0 && now.Sub(time.Unix(0, staged)) > stagingKept
	if p.r == nil || !expired && !p.r.untidy.Load() {
		return
	}
	leave, _ := p.intake.tryEnter(func(error) {}, false)
	if leave == nil {
		return
	}
	defer leave()
	if pending, _, err := p.r.stagedState(); pending || err != nil || p.stopped() {
		return
	}
	p.r.untidy.Store(false)
	next, err := p.sweepGenerations(!expired)
	if err != nil {
		p.r.untidy.Store(true)
		p.host.logger.Warn("old files of a replica stay", "partition", p.name(), "err", err)
	}
	if !next {
		p.intake.staged.Store(0)
	}
}
