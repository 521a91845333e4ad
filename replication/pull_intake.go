package replication

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/billetlog/billet/segment"
	"github.com/billetlog/billet/transport"
)

// intake is a partition's end of being brought up to date. One offer is taken at a time.
type intake struct {
	pulled atomic.Int64 // bytes of the one that runs
	staged atomic.Int64 // when an import was last left or found unfinished, Unix nanoseconds; 0: none

	mu struct {
		sync.Mutex
		end      context.CancelCauseFunc // of whoever is in; nil: nobody
		left     chan struct{}           // closed when it has left
		importer *segment.Importer
		now      CatchUp
	}
}

// enter lets the caller in when whoever is in has left, which it is told to do.
func (in *intake) enter(ctx context.Context, end context.CancelCauseFunc) (leave func(), err error) {
	for {
		leave, left := in.tryEnter(end, true)
		if leave != nil {
			return leave, nil
		}
		select {
		case <-left:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// tryEnter lets the caller in when nobody is; left is closed when who is in has left.
func (in *intake) tryEnter(end context.CancelCauseFunc, displace bool) (leave func(), left <-chan struct{}) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.mu.end != nil {
		if displace {
			in.mu.end(errOfferDisplaced)
		}
		return nil, in.mu.left
	}
	done := make(chan struct{})
	in.mu.end, in.mu.left = end, done
	return func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		in.mu.end, in.mu.importer = nil, nil
		close(done)
	}, nil
}

// stop ends what runs.
func (in *intake) stop(cause error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.mu.end != nil {
		in.mu.end(cause)
	}
}

// takeOffer answers an offer when the replica has what was offered, or why it will not.
func (h *Host) takeOffer(ctx context.Context, from int32, payload []byte) ([]byte, error) {
	o, err := decodeOffer(payload)
	if err != nil {
		return nil, err
	}
	p := h.partitionOf(o.Shard)
	if p == nil || p.spec.Replica != o.To {
		return nil, fmt.Errorf("%w: replica %x of shard %d does not run on node %d", ErrUnknownTopic, o.To, o.Shard, h.cfg.Node.ID)
	}
	return nil, p.takeOffer(ctx, from, o)
}

func (p *Partition) takeOffer(ctx context.Context, from int32, o *offer) error {
	ctx, cancel := p.endWith(ctx)
	defer cancel(nil)
	if err := p.admitOffer(from, o); err != nil {
		return err
	}
	leave, err := p.intake.enter(ctx, cancel)
	if err != nil {
		return err
	}
	defer leave()
	if !p.life.TryRLock() {
		return errRunning
	}
	defer p.life.RUnlock()
	if err := p.admitOffer(from, o); err != nil { // things may have changed
		return err
	}
	if o.Index <= p.r.committed() {
		return nil // Raft would not take it; the leader learns from its next message what is there
	}
	place, err := takePlace(ctx, p.host.catchUps.in)
	if err != nil {
		return err
	}
	defer place()
	return p.catchUp(ctx, from, o)
}

// admitOffer says why an offer is not taken.
func (p *Partition) admitOffer(from int32, o *offer) error {
	switch {
	case p.stopped() || p.r == nil:
		return p.whyStopped()
	case p.r.latched.Load():
		return fmt.Errorf("%w: %s", ErrFailed, p.name())
	case p.host.disk.braked.Load():
		return fmt.Errorf("%w: %s", ErrDiskFull, p.name())
	}
	if err := o.check(from, p.r.role()); err != nil {
		p.host.logger.Warn("a peer's offer was refused", "partition", p.name(), "peer", from, "err", err)
		return err
	}
	return p.checkLeader(o)
}

// checkLeader says whether an offer comes from the leader: Raft takes a snapshot whoever it is from, and then believes that this one leads.
func (p *Partition) checkLeader(o *offer) error {
	if leader, _, ok := p.host.guard.leader(p.spec.Shard); !ok || leader != o.From {
		return fmt.Errorf("%w: %s", errNotTheLeader, p.name())
	}
	return nil
}

// catchUp pulls what is offered and has it installed.
func (p *Partition) catchUp(ctx context.Context, from int32, o *offer) error {
	start := p.host.now()
	e := Event{Kind: EventCatchUp, Topic: p.spec.Topic, Partition: p.spec.Partition, Offset: o.Extent.EndOffset}
	e.Detail = fmt.Sprintf("from node %d, through Raft index %d", from, o.Index)
	p.host.emit(e)
	p.intake.pulled.Store(0)
	err := p.receive(ctx, from, o, start)
	e.Bytes, e.Duration = p.intake.pulled.Load(), p.host.now().Sub(start)
	e.Kind, e.Err = EventCatchUpDone, nil
	if err != nil {
		e.Kind, e.Err = EventCatchUpFailed, err
	}
	p.host.emit(e)
	return err
}

func (p *Partition) receive(ctx context.Context, from int32, o *offer, start time.Time) error {
	if err := p.awaitStaged(ctx, installWait); err != nil {
		return err
	}
	p.intake.staged.Store(p.host.now().UnixNano())
	options, reuse, through := p.nextGeneration()
	im, err := segment.OpenImporter(options, o.Extent, reuse, through)
	if err != nil {
		return err
	}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		_ = im.Close()
	})
	defer func() {
		p.intake.staged.Store(p.host.now().UnixNano())
		if !stop() {
			<-closed
			return
		}
		_ = im.Close() // an error says only that it is closed
	}()
	p.intake.mu.Lock()
	p.intake.mu.importer, p.intake.mu.now = im, CatchUp{From: from, Index: o.Index, Since: start}
	p.intake.mu.Unlock()
	if err := p.pullAll(ctx, from, o, im); err != nil {
		return err
	}
	if err := im.Finish(segment.Checkpoint{Index: o.Index, Term: o.Term, Offset: o.Extent.EndOffset, Payload: o.fold}); err != nil {
		return cause(ctx, err)
	}
	return p.install(ctx, o, options.Generation)
}

// cause is why ctx ended, if it did, else err.
func cause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// pullAll pulls all that is missing. What breaks is asked for again while bytes come.
func (p *Partition) pullAll(ctx context.Context, from int32, o *offer, im *segment.Importer) error {
	wait, moved := pullBackoffMin, time.Now()
	for {
		n, offset, length, ok := im.Next()
		if !ok {
			return cause(ctx, nil)
		}
		kept, fatal, err := p.pullRange(ctx, from, im, transport.PullRequest{Payload: pullName(o.ID, n), Offset: offset, Length: length})
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case fatal:
			return err
		case kept > 0:
			wait, moved = pullBackoffMin, time.Now()
		case time.Since(moved) > pullPatience:
			return fmt.Errorf("no byte came for %v: %w", pullPatience, err)
		}
		if err == nil {
			continue
		}
		if errors.Is(err, segment.ErrCorrupt) && n < len(o.Extent.Segments) {
			p.host.tellSuspect(ctx, from, suspectRequest{o.Shard, o.From, o.Extent.Segments[n].BaseOffset})
		}
		p.host.logger.Debug("a pull broke", "partition", p.name(), "node", from, "kept", kept, "err", err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
		wait = min(2*wait, pullBackoffMax)
	}
}

// pullRange pulls one range. fatal says that asking again is of no use: the offer is gone, or the files here failed.
func (p *Partition) pullRange(ctx context.Context, from int32, im *segment.Importer, r transport.PullRequest) (kept int64, fatal bool, err error) {
	pull, err := p.host.cfg.peers.node.Pull(ctx, from, r)
	if err != nil {
		return 0, !retryable(err), err
	}
	defer pull.Close()
	in := &countingReader{r: pull, n: &p.intake.pulled}
	kept, err = im.ReadFrom(in)
	fatal = err != nil && in.err == nil && !errors.Is(err, segment.ErrCorrupt) && !errors.Is(err, io.ErrUnexpectedEOF)
	return kept, fatal, err
}

// countingReader counts, and remembers how it ended.
type countingReader struct {
	r   io.Reader
	n   *atomic.Int64
	err error
}

func (c *countingReader) Read(b []byte) (int, error) {
	n, err := c.r.Read(b)
	c.n.Add(int64(n))
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

// install gives Raft the pieces of a snapshot whose log is complete, and waits for what becomes of it.
func (p *Partition) install(ctx context.Context, o *offer, generation uint64) error {
	if err := p.checkLeader(o); err != nil { // what is there stays for the offer of who leads now
		return err
	}
	p.r.stage(o.Index, o.Term, generation)
	if err := p.host.guard.chunks(p.host.net.chunks, o.chunks); err != nil {
		p.r.unstage(o.Index, o.Term)
		return err
	}
	return p.awaitStaged(ctx, 0)
}
