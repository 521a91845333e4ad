package replication

import (
	"errors"
	"fmt"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/segment"
)

// Cursor reads a partition's committed batches in order. It is for one goroutine.
type Cursor struct {
	p   *Partition
	log *segment.Log
	c   *segment.Cursor
}

// NewCursor makes a cursor. It costs nothing before its first Read; Close frees what it holds.
func (p *Partition) NewCursor() *Cursor { return &Cursor{p: p} }

// Read appends to dst whole batches beginning with the one that contains offset, and returns it: as many as fit maxBytes, but at least one when
// there is one below the high watermark. At the high watermark it returns dst as it is. ErrCompacted (of segment) below the
// partition's start, ErrUnavailable above the high watermark, a *segment.CorruptionError on damage. The batches' CRC is not
// checked: whoever decodes them does.
func (c *Cursor) Read(dst []byte, offset int64, maxBytes int) ([]byte, error) {
	if c.p.r == nil {
		return dst, c.p.whyStopped()
	}
	out, err := c.read(dst, offset, maxBytes)
	if errors.Is(err, segment.ErrClosed) {
		c.p.awaitRestart()
		out, err = c.read(dst, offset, maxBytes)
	}
	if errors.Is(err, segment.ErrClosed) {
		return dst, c.p.whyStopped()
	}
	if err != nil {
		c.p.suspectError(offset, err)
		return dst, fmt.Errorf("reading %s at %d: %w", c.p.name(), offset, err)
	}
	return out, nil
}

// ReadChecked is Read for whoever hands the batches to clients that cannot tell of damage: it checks every batch's CRC, gives what is before a bad one,
// and has the replica looked at. A bad batch in the first place is a segment.ErrCorrupt.
func (c *Cursor) ReadChecked(dst []byte, offset int64, maxBytes int) ([]byte, error) {
	had, next := len(dst), offset
	dst, err := c.Read(dst, offset, maxBytes)
	if err != nil {
		return dst, err
	}
	for rest := dst[had:]; len(rest) > 0; {
		b, after, err := batch.Split(rest, 0)
		if err == nil {
			err = b.CheckCRC()
		}
		if err == nil {
			rest, next = after, b.NextOffset()
			continue
		}
		c.p.Suspect(next)
		if next > offset {
			return dst[:len(dst)-len(rest)], nil
		}
		return dst[:had], fmt.Errorf("reading %s at %d: %w: %w", c.p.name(), offset, segment.ErrCorrupt, err)
	}
	return dst, nil
}

// awaitRestart waits while the replica's files are being opened again, as after a full disk: whoever does that has the lock of its life.
func (p *Partition) awaitRestart() {
	p.life.RLock()
	defer p.life.RUnlock()
}

func (c *Cursor) read(dst []byte, offset int64, maxBytes int) ([]byte, error) {
	if log := c.p.r.currentLog(); c.c == nil || c.log != log {
		c.Close()
		c.log, c.c = log, log.NewCursor()
	}
	if start := c.p.StartOffset(); offset < start {
		return dst, &segment.CompactedError{FirstIndex: c.log.FirstIndex(), StartOffset: start}
	}
	return c.c.Read(dst, offset, c.p.HighWatermark(), maxBytes)
}

// whyStopped is why a partition cannot be read: it is quarantined, deleted or closed.
func (p *Partition) whyStopped() error {
	if _, cause := p.State(); cause != nil {
		return cause
	}
	return fmt.Errorf("%w: %s", ErrClosed, p.name())
}

// Close frees what the cursor holds. It can be used again.
func (c *Cursor) Close() {
	if c.c != nil {
		c.c.Close()
		c.c, c.log = nil, nil
	}
}

// OffsetForTime returns the first committed record whose timestamp, in milliseconds, is ts or later; ok is false when there is none.
func (p *Partition) OffsetForTime(ts int64) (offset, timestamp int64, ok bool, err error) {
	if p.r == nil {
		return 0, 0, false, p.whyStopped()
	}
	offset, timestamp, ok, err = p.r.currentLog().OffsetForTime(ts, p.StartOffset(), p.HighWatermark())
	return offset, timestamp, ok, p.suspected(err)
}

// MaxTimestamp returns the first of the committed records that have the latest timestamp (KIP-734), in milliseconds; ok is false when there are none, or
// none with a timestamp.
func (p *Partition) MaxTimestamp() (offset, timestamp int64, ok bool, err error) {
	if p.r == nil {
		return 0, 0, false, p.whyStopped()
	}
	offset, timestamp, ok, err = p.r.currentLog().MaxTimestamp(p.StartOffset(), p.HighWatermark())
	return offset, timestamp, ok, p.suspected(err)
}

// suspected notes damage that a look at the log met.
func (p *Partition) suspected(err error) error {
	var at *segment.CorruptionError
	if errors.As(err, &at) {
		p.Suspect(at.Offset)
	}
	return err
}

// Unsynced is the age of the oldest record that is acknowledged and not durable, under fsync policy interval; 0 when there is none.
func (p *Partition) Unsynced() time.Duration {
	if p.r == nil {
		return 0
	}
	since, ok := p.r.unsyncedSince()
	if !ok {
		return 0
	}
	return max(p.host.now().Sub(since), 1)
}

// DurableIndex returns the Raft index up to which the log is durable, and the last one stored.
func (p *Partition) DurableIndex() (durable, last uint64) {
	if p.r == nil {
		return 0, 0
	}
	log := p.r.currentLog()
	return log.DurableIndex(), log.LastIndex()
}
