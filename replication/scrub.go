package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/billetlog/billet/segment"
)

// A disk loses bytes without telling. What is read often is found damaged by its readers; everything else is read by the scrubber, slowly and in
// turn, so that a replica's damage is known while the others are still whole.

const (
	// DefaultScrubBytesPerSecond is how fast a node reads its own logs to find damage.
	DefaultScrubBytesPerSecond = 4 << 20

	defaultScrubRest = 10 * time.Minute       // between the begins of two rounds at least
	scrubTries       = 2                      // failed reads of a segment that make it damaged
	scrubRetry       = 100 * time.Millisecond // between them
	scrubPauseMax    = time.Second            // of one wait: the bound of what is owed to the pace
	damageHandOver   = 5 * time.Second        // for a damaged replica to give its leadership away
)

// errDamaged is the cause of a replica that was stopped since its files are damaged.
var errDamaged = errors.New("replication: damage was found in the replica's files")

func (c *HostConfig) ensureScrubDefaults() {
	if c.ScrubBytesPerSecond == 0 {
		c.ScrubBytesPerSecond = DefaultScrubBytesPerSecond
	}
	if c.scrubRest == 0 {
		c.scrubRest = defaultScrubRest
	}
}

// startScrub starts what looks for damage.
func (h *Host) startScrub() {
	h.serve(requestSuspect, h.answerSuspect)
	h.tasks.Go(h.inspect)
	if h.cfg.ScrubBytesPerSecond > 0 {
		h.tasks.Go(h.scrub)
	}
}

// scrub verifies all logs in turn, at the configured pace.
func (h *Host) scrub() {
	timer := time.NewTimer(h.cfg.scrubRest)
	defer timer.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case <-timer.C:
		}
		began := time.Now()
		for _, p := range h.Partitions() {
			p.scrub(h.ctx, h.scrubPace)
		}
		timer.Reset(max(h.cfg.scrubRest-time.Since(began), 0))
	}
}

// scrubPace waits as long as reading n bytes may take.
func (h *Host) scrubPace(n int) error {
	owed := time.Duration(float64(n) / float64(h.cfg.ScrubBytesPerSecond) * float64(time.Second))
	for owed > 0 {
		wait := min(owed, scrubPauseMax)
		owed -= wait
		if !pause(h.ctx, wait) {
			return h.ctx.Err()
		}
	}
	return nil
}

// scrub verifies a replica segment by segment.
func (p *Partition) scrub(ctx context.Context, pace func(n int) error) {
	p.mu.Lock()
	open := p.r != nil && !p.mu.state.stopped()
	p.mu.Unlock()
	if !open {
		return
	}
	for _, s := range p.r.currentLog().Segments() {
		if ctx.Err() != nil || p.stopped() || p.damage.Load() != nil {
			return
		}
		p.verify(ctx, s.BaseOffset, pace)
	}
}

// verify reads one segment. It holds no lock: the log may be closed or replaced meanwhile, and then its answer does not count. What is wrong is
// wrong twice, so that one failed read is no damage.
func (p *Partition) verify(ctx context.Context, offset int64, pace func(n int) error) {
	if p.r == nil || p.stopped() || p.damage.Load() != nil {
		return
	}
	log := p.r.currentLog()
	var err error
	for try := range scrubTries {
		if try > 0 && !pause(ctx, scrubRetry) {
			return
		}
		err = log.VerifySegment(ctx, offset, pace)
		if err == nil || ctx.Err() != nil || errors.Is(err, segment.ErrClosed) {
			return
		}
	}
	if p.ctx.Err() == nil && p.r.currentLog() == log {
		p.damaged(err)
	}
}

// damaged takes a replica with damaged files out of service if the others can do without it. A replica whose group could not goes on with
// what is good: its entries are whole where Raft still needs them, or it would have been stopped by that.
func (p *Partition) damaged(err error) {
	if p.stopped() || !p.damage.CompareAndSwap(nil, &err) {
		return
	}
	p.host.scrubber.damaged.Add(1)
	if p.dispensable() {
		p.giveUpLeadership()
		p.r.latch(fmt.Errorf("%w: %w", errDamaged, err))
		return
	}
	e := Event{Kind: EventDamaged, Topic: p.spec.Topic, Partition: p.spec.Partition, Offset: -1, Err: err}
	var at *segment.CorruptionError
	if errors.As(err, &at) {
		e.Offset = at.Offset
	}
	p.host.logger.Error("damage was found; what is good is served on", "partition", p.name(), "err", err)
	p.host.leadership.tell(p) // readers go elsewhere
	p.host.emit(e)
}

// failDamaged follows the latch of a replica that was given up since its files are damaged. Reads of what is good go on.
func (p *Partition) failDamaged(cause error) {
	err := fmt.Errorf("%w: %s: %w", ErrQuarantined, p.name(), cause)
	p.loseLeadership(fmt.Errorf("%w: %s: %w", ErrAmbiguous, p.name(), cause), StateQuarantined, err)
	p.host.tellReplicaGone(p)
	p.host.logger.Error("a damaged replica is taken out, to be replaced from the others", "partition", p.name(), "err", err)
	p.host.emit(Event{Kind: EventQuarantined, Topic: p.spec.Topic, Partition: p.spec.Partition, Offset: -1, Err: err})
	ctx, cancel := context.WithTimeout(p.host.ctx, snapshotTimeout)
	defer cancel()
	if err := p.host.stopRaft(ctx, p); err != nil {
		p.host.logger.Warn("the group of a damaged replica did not stop", "partition", p.name(), "err", err)
		return
	}
	p.leaveJournal()
}

// dispensable says whether those of the group's other voters that can be reached are a quorum without this replica; when they are not, it is replaced
// later. The metadata's replica never is dispensable: its node would know nothing new without it. It is replaced when the node is opened.
func (p *Partition) dispensable() bool {
	if p.spec.Shard == metadataShard {
		return false
	}
	others, reached, votes := p.others()
	if !votes {
		return others > 0
	}
	return reached >= quorum(others+1)
}

// others counts the group's other voters, as far as is known here, and those whose nodes can be reached, and says whether this replica votes.
func (p *Partition) others() (n, reached int, votes bool) {
	for _, id := range p.voters() {
		if id == p.spec.Replica {
			votes = true
			continue
		}
		n++
		if p.host.reachable(nodeOf(id)) {
			reached++
		}
	}
	return n, reached, votes
}

// giveUpLeadership has another replica lead, if one can, so that nobody waits for an election.
func (p *Partition) giveUpLeadership() {
	if p.Epoch() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(p.ctx, damageHandOver)
	defer cancel()
	for _, id := range p.voters() {
		if id != p.spec.Replica && p.caughtUp(id) && p.host.reachable(nodeOf(id)) {
			if err := p.transferLeadership(ctx, id); err != nil {
				p.host.logger.Info("a damaged replica did not give up its leadership in time", "partition", p.name(), "err", err)
			}
			return
		}
	}
}

// Damage is why the replica's files are known to be damaged, nil when they are not.
func (p *Partition) Damage() error {
	if err := p.damage.Load(); err != nil {
		return *err
	}
	return nil
}

// DamagedReplicas counts the replicas in which damage was found since the host was opened.
func (h *Host) DamagedReplicas() int64 { return h.scrubber.damaged.Load() }
