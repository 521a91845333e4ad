package broker

import (
	"context"
	"sync"
	"time"

	"github.com/billetlog/billet/group"
)

// Offsets are committed again and again, and only the last ones count. When most of the
// log counts no more, the groups are written anew at its end, and what was before that is
// taken away. So the log, and the time to read it, are bounded by what the groups have.
const (
	tidyMin      = 250_000 // records that a log has at least when it is rewritten
	tidyShare    = 8       // how many times as many records it has as count
	tidyInterval = time.Minute
	tidyBacklog  = 1 << 20 // bytes that wait to be appended: above it no more is written anew
	tidyTimeout  = time.Minute
)

// tidying is where the rewriting is. The zero value is ready.
type tidying struct {
	next      time.Time // when to look whether it has to be done
	under     bool
	before    int64     // what is in the log up to here can go in the end
	names     []string  // groups that are not written yet
	last      group.Seq // the last write of it
	committed group.Seq

	trimming sync.WaitGroup
	cancel   context.CancelFunc
}

// stop waits until nothing runs.
func (d *tidying) stop() {
	if d.cancel != nil {
		d.cancel()
	}
	d.trimming.Wait()
}

// tidyUp goes on with the rewriting, or begins it when it is time.
func (t *tenure) tidyUp(ctx context.Context) {
	d := &t.tidy
	now := t.c.env.now()
	if !d.under {
		if now.Before(d.next) {
			return
		}
		d.next = now.Add(t.c.env.tidyInterval)
		end := t.c.log.HighWatermark()
		records := end - t.c.log.StartOffset()
		if records < t.c.env.tidyMin || records < tidyShare*int64(t.core.Live()) {
			return
		}
		d.under, d.before, d.names, d.last = true, end, t.core.Names(), 0
	}
	for len(d.names) > 0 {
		if t.bytes >= tidyBacklog {
			return // it goes on when that is appended
		}
		e := t.core.Rewrite(now, d.names[:1])
		d.names = d.names[1:]
		if n := len(e.Writes); n > 0 {
			d.last = e.Writes[n-1].Seq
		}
		t.take(e)
	}
	if d.committed < d.last {
		return
	}
	d.under, d.names, d.next = false, nil, now.Add(t.c.env.tidyInterval)
	d.stop()
	ctx, d.cancel = context.WithTimeout(ctx, tidyTimeout)
	before := d.before
	d.trimming.Go(func() {
		if err := t.c.log.Trim(ctx, before); err != nil && ctx.Err() == nil {
			t.c.env.logger.Warn("what the groups need no more was not taken away", "partition", t.c.number, "before", before, "err", err)
		}
	})
}
