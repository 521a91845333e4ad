package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/billetlog/billet/group"
	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/kerr"
	"github.com/billetlog/billet/replication"
)

// Bounds of a tenure.
const (
	turnMax    = 256       // requests between two looks at the rest
	flightsMax = 16        // batches that are appended and not answered
	backlogMax = 4 << 20   // bytes of writes that are not appended: above it no requests are taken
	batchMax   = 960 << 10 // bytes of records of several writes in one batch
	busyRetry  = 20 * time.Millisecond
	busyMax    = 10 * time.Second // how long a partition may have no room
	restMax    = time.Second      // between two looks at what is due, while members are timed
	delayMin   = time.Second      // what counts as held up
)

// tenure is a core at work, in one epoch.
type tenure struct {
	c     *coordinator
	epoch int32
	core  *group.Core
	since time.Time

	topics *topics   // that the core knows
	base   *topics   // those up to which deletions are in the log
	purge  group.Seq // the last write of the deletions after base
	drawn  *topics   // to become base when that is committed

	waiting map[group.Token]*asked
	token   group.Token
	wake    time.Time
	came    time.Time // when the loop last looked at the clock

	backlog []group.Write
	bytes   int // of the backlog
	flights []*flight
	busy    time.Time // since when the partition has had no room; zero: it has
	builder batch.Builder
	tidy    tidying
}

// flight is a batch that was appended.
type flight struct {
	seq  group.Seq // of its last write
	done bool
}

// landing is the answer to an append.
type landing struct {
	flight *flight
	err    error
}

// run loads a core and works with it until that has to end, and until nothing of it is
// in flight.
func (t *tenure) run(ctx context.Context) error {
	c := t.c
	c.refuse(kerr.COORDINATOR_LOAD_IN_PROGRESS)
	core, err := c.load(ctx, t.epoch)
	if err != nil {
		c.refuse(kerr.COORDINATOR_NOT_AVAILABLE)
		return fmt.Errorf("loading: %w", err)
	}
	t.core, t.waiting = core, map[group.Token]*asked{}
	t.topics = t.base
	t.core.SetTopics(t.topics.all)
	t.came = c.env.now()
	t.take(core.Loaded(t.came))
	c.admit()
	for err == nil {
		if err = t.turn(ctx); err == nil {
			c.sleep(ctx, t.due())
			t.noticeDelay()
		}
	}
	t.end(ctx, err)
	t.tidy.stop()
	return err
}

// due is when there is something to do without a signal.
func (t *tenure) due() time.Time {
	now, due := t.c.env.now(), t.wake
	sooner := func(at time.Time) {
		if due.IsZero() || at.Before(due) {
			due = at
		}
	}
	if !t.busy.IsZero() {
		sooner(now.Add(busyRetry))
	}
	if t.core.Timed() {
		sooner(now.Add(restMax))
	}
	return due
}

// noticeDelay tells the core when the loop should have come by long ago, while members
// are timed: the process or its machine stood still, and their requests may wait in
// sockets yet.
func (t *tenure) noticeDelay() {
	now := t.c.env.now()
	if late := now.Sub(t.came) - restMax; late > delayMin && t.core.Timed() {
		t.c.env.logger.Warn("the groups of a partition were left alone, and their members get more time", "partition", t.c.number, "for", late)
		t.take(t.core.Delay(now, late))
	}
	t.came = now
}

// turn does what there is to do.
func (t *tenure) turn(ctx context.Context) error {
	if ctx.Err() != nil {
		return errEnded
	}
	if t.c.log.Epoch() != t.epoch {
		return errMoved
	}
	if err := t.settle(); err != nil {
		return err
	}
	t.followTopics()
	for n := 0; t.bytes < backlogMax; n++ {
		if n == turnMax {
			t.c.signal()
			break
		}
		a := t.c.next()
		if a == nil {
			if now := t.c.env.now(); !t.wake.IsZero() && !now.Before(t.wake) {
				t.take(t.core.Tick(now))
			}
			break
		}
		t.handle(a)
	}
	t.tidyUp(ctx)
	return t.flush()
}

func (t *tenure) handle(a *asked) {
	if a.look != nil {
		a.look(t.core)
		a.answer <- nil
		return
	}
	if len(t.waiting) >= waitingMax {
		a.answer <- a.failure(kerr.COORDINATOR_NOT_AVAILABLE)
		return
	}
	t.token++
	t.waiting[t.token] = a
	t.take(t.core.Handle(t.c.env.now(), group.Request{Token: t.token, ClientID: a.from.ID, ClientHost: "/" + a.from.Host, Body: a.body}))
}

// take does what the core wants, or notes it down.
func (t *tenure) take(e group.Effects) {
	t.wake = e.Wake
	for i := range e.Writes {
		t.bytes += writeSize(&e.Writes[i])
	}
	t.backlog = append(t.backlog, e.Writes...)
	for _, r := range e.Responses {
		if a := t.waiting[r.Token]; a != nil {
			delete(t.waiting, r.Token)
			a.answer <- r.Body
		}
	}
}

// recordOverhead is what a record takes in a batch besides key and value, at most.
const recordOverhead = 32

func writeSize(w *group.Write) (n int) {
	for _, r := range w.Records {
		n += len(r.Key) + len(r.Value) + recordOverhead
	}
	return n
}

// followTopics tells the core which topics there are, and once which were deleted.
func (t *tenure) followTopics() {
	now := t.c.env.topics.get()
	if now != t.topics {
		t.topics = now
		t.core.SetTopics(now.all)
	}
	if now == t.base || now == t.drawn {
		return
	}
	from := t.base
	if t.drawn != nil {
		from = t.drawn
	}
	if gone := now.deletedSince(from); len(gone) > 0 {
		e := t.core.TopicsDeleted(t.c.env.now(), gone)
		t.take(e)
		if n := len(e.Writes); n > 0 {
			t.purge = e.Writes[n-1].Seq
		}
	}
	if t.drawn = now; t.purge == 0 {
		t.base, t.drawn = now, nil
	}
}

// flush appends the backlog, as far as the partition takes it.
func (t *tenure) flush() error {
	for len(t.backlog) > 0 && len(t.flights) < flightsMax {
		n, b, err := t.build()
		if err != nil {
			return fmt.Errorf("making a batch: %w", err)
		}
		f := &flight{seq: t.backlog[n-1].Seq}
		t.flights = append(t.flights, f)
		err = t.c.append(t.epoch, b, f)
		batch.Release(b)
		if err != nil {
			t.flights = t.flights[:len(t.flights)-1]
			return t.refused(err)
		}
		t.busy = time.Time{}
		for i := range t.backlog[:n] {
			t.bytes -= writeSize(&t.backlog[i])
		}
		clear(t.backlog[:n])
		if t.backlog = t.backlog[n:]; len(t.backlog) == 0 {
			t.backlog = nil
		}
	}
	return nil
}

// refused takes that a batch was not appended. Where there was no room it waits for some.
func (t *tenure) refused(err error) error {
	if !errors.Is(err, replication.ErrBusy) {
		return err
	}
	now := t.c.env.now()
	if t.busy.IsZero() {
		t.busy = now
	}
	if waited := now.Sub(t.busy); waited > busyMax {
		return fmt.Errorf("there was no room for %v: %w", waited, err)
	}
	return nil
}

// build makes a batch of as many writes as fit, at least one.
func (t *tenure) build() (n int, b batch.Batch, err error) {
	t.builder.Reset(batch.BuilderOptions{})
	for size := 0; n < len(t.backlog); n++ {
		w := &t.backlog[n]
		if size += writeSize(w); n > 0 && size > batchMax {
			break
		}
		for _, r := range w.Records {
			t.builder.Append(w.Time.UnixMilli(), r.Key, r.Value, nil)
		}
	}
	b, err = t.builder.Finish()
	return n, b, err
}

// append gives a batch to the log. An error says that it was refused at once, and then
// nothing may be appended behind it; what becomes of it otherwise is a landing.
func (c *coordinator) append(epoch int32, b batch.Batch, f *flight) (refused error) {
	returned := false // guarded by mu, as is refused until then
	c.log.Append(b, replication.AppendOptions{Acks: replication.AcksAll, Epoch: epoch}, func(r replication.AppendResult) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !returned && r.Err != nil {
			refused = r.Err
			return
		}
		c.mu.landed = append(c.mu.landed, landing{f, r.Err})
		c.signal()
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	returned = true
	return refused
}

// land notes which appends were answered. An error is the first that one had.
func (t *tenure) land() (failed error) {
	t.c.mu.Lock()
	landed := t.c.mu.landed
	t.c.mu.landed = nil
	t.c.mu.Unlock()
	for _, l := range landed {
		l.flight.done = true
		if failed == nil {
			failed = l.err
		}
	}
	return failed
}

// settle tells the core what is committed. An error is the first that an append had.
func (t *tenure) settle() error {
	if err := t.land(); err != nil {
		return err
	}
	committed := 0
	for committed < len(t.flights) && t.flights[committed].done {
		committed++
	}
	if committed == 0 {
		return nil
	}
	seq := t.flights[committed-1].seq
	t.flights = append(t.flights[:0], t.flights[committed:]...)
	if t.purge != 0 && t.purge <= seq {
		t.base, t.drawn, t.purge = t.drawn, nil, 0
	}
	t.tidy.committed = seq
	t.take(t.core.Committed(seq))
	return nil
}

// end stops the core, and waits until nothing of it is in flight.
func (t *tenure) end(ctx context.Context, why error) {
	code := kerr.COORDINATOR_NOT_AVAILABLE
	if ctx.Err() != nil || errors.Is(why, replication.ErrNotLeader) || t.c.log.Epoch() != t.epoch {
		code = kerr.NOT_COORDINATOR
	}
	t.c.refuse(code)
	t.take(t.core.Stop(code))
	for token, a := range t.waiting {
		delete(t.waiting, token)
		a.answer <- a.failure(code)
	}
	for {
		_ = t.land() // why says it already
		if ctx.Err() != nil || !slices.ContainsFunc(t.flights, func(f *flight) bool { return !f.done }) {
			return
		}
		t.c.sleep(ctx, time.Time{})
	}
}
