package replication

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/segment"
)

// The metadata partition as a log: how the controller writes records and every node follows them.

// read folds what is committed and not yet read. errMetadataDamaged says that this node's copy is not what was written.
func (c *Controller) read(context.Context) error {
	err := c.readOn()
	if errors.Is(err, segment.ErrCorrupt) || errors.Is(err, batch.ErrCorrupt) {
		c.mu.RLock()
		next := c.mu.next
		c.mu.RUnlock()
		c.meta().Suspect(next)
		return fmt.Errorf("%w: %w", errMetadataDamaged, err)
	}
	return err
}

func (c *Controller) readOn() error {
	c.reader.Lock()
	defer c.reader.Unlock()
	var r batch.Reader
	for {
		c.mu.RLock()
		next := c.mu.next
		c.mu.RUnlock()
		if next >= c.meta().HighWatermark() {
			return nil
		}
		buf, err := c.reader.cursor.Read(c.reader.buf[:0], next, metadataReadSize)
		if err != nil {
			return err
		}
		c.reader.buf = buf
		for len(buf) > 0 {
			b, rest, err := batch.Split(buf, len(buf))
			if err == nil {
				err = b.CheckCRC()
			}
			if err == nil {
				err = r.Reset(b, maxMessageBytesMax)
			}
			if err == nil {
				err = c.fold(&r, b.NextOffset())
			}
			if err != nil {
				return fmt.Errorf("cluster metadata at offset %d: %w", next, err)
			}
			buf, next = rest, b.NextOffset()
		}
	}
}

// errView means that a record says what this program does not understand: reading it again does not help.
var errView = errors.New("replication: the metadata cannot be followed")

// fold takes the records of one batch into the view.
func (c *Controller) fold(r *batch.Reader, next int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var rec batch.Record
	for r.Next(&rec) {
		if err := c.mu.apply(rec.Key, rec.Value); err != nil {
			return fmt.Errorf("%w: %w", errView, err)
		}
	}
	if err := r.Err(); err != nil {
		return fmt.Errorf("%w: %w", segment.ErrCorrupt, err)
	}
	c.mu.next = next
	c.changedLocked()
	return nil
}

// fresh waits until this node knows all that was committed when it was called.
func (c *Controller) fresh(ctx context.Context) error {
	led := time.Now()
	for asked := time.Now(); ; {
		err := error(errNoLeader)
		if _, ok := c.leaderNode(); ok { // before there is one, dragonboat answers with the end of the time only
			led = time.Now()
			attempt, cancel := context.WithTimeout(ctx, freshAttempt)
			err = c.host.guard.readIndex(attempt, metadataShard, freshAttempt)
			cancel()
		}
		if err == nil {
			return c.read(ctx)
		}
		if err := c.renewMetadata(ctx, led); err != nil {
			c.host.logger.Debug("this node's replica of the metadata may not count", "err", err)
		}
		if state, cause := c.meta().State(); state.stopped() {
			return fmt.Errorf("replication: the cluster's metadata is not available: %w", cmpError(cause, ErrClosed))
		}
		if time.Since(asked) > refusedEvery {
			asked = time.Now()
			if err := c.refused(ctx); err != nil {
				return err
			}
		}
		select {
		case <-time.After(controllerPause):
		case <-ctx.Done():
			return fmt.Errorf("replication: the cluster's metadata is not available, no majority of its voters was reached: %w", context.Cause(ctx))
		case <-c.ctx.Done():
			return fmt.Errorf("%w: controller", ErrClosed)
		}
	}
}

const (
	freshAttempt = 500 * time.Millisecond // for one ReadIndex
	refusedEvery = time.Second            // between questions whether this node was removed
)

// refused asks the other nodes whether this one may take part: one that was removed while it was down hears of nobody, and would wait for ever.
func (c *Controller) refused(ctx context.Context) error {
	nodes := c.Nodes()
	c.host.addresses(nodes)
	for _, n := range nodes {
		if n.ID == c.host.cfg.Node.ID || !c.host.reachable(n.ID) {
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, barrierTimeout)
		var a decideAnswer
		err := c.host.callJSON(ctx, n.ID, requestDecide, decideRequest{Name: "register", Args: mustJSON(c.host.registration())}, &a)
		cancel()
		if err == nil && a.Err != "" {
			err = errorOf(n.ID, a.Code, a.Err)
		}
		if errors.Is(err, ErrForeignDir) || errors.Is(err, ErrNodeExists) {
			return err
		}
		if err == nil {
			return nil
		}
	}
	return nil
}

func cmpError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// write appends records to the metadata as one batch, waits until it is committed, and brings the view up to it. ErrAmbiguous says that they may be
// there all the same; then the next decision waits for their fate first.
func (c *Controller) write(ctx context.Context, records ...metadataRecord) error {
	for {
		b, err := c.buildRecords(records)
		if err != nil {
			return err
		}
		freed := make(chan struct{}, 1)
		cancel := c.meta().Notify(freed)
		done := make(chan AppendResult, 1)
		c.meta().Append(b, AppendOptions{Acks: AcksAll}, func(res AppendResult) { done <- res })
		retry, err := c.awaitRecord(ctx, done, freed)
		cancel()
		if !retry {
			return err
		}
	}
}

// awaitRecord waits for a record's answer; retry says that it was not written since too much is in flight, and may be tried again.
func (c *Controller) awaitRecord(ctx context.Context, done chan AppendResult, freed <-chan struct{}) (retry bool, err error) {
	var res AppendResult
	select {
	case res = <-done:
	case <-ctx.Done():
		c.lead.open = done
		return false, fmt.Errorf("%w: writing the cluster's metadata: %w", ErrAmbiguous, context.Cause(ctx))
	}
	switch {
	case res.Err == nil:
		return false, c.read(ctx)
	case errors.Is(res.Err, ErrBusy):
		select {
		case <-freed:
			return true, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	return false, fmt.Errorf("writing the cluster's metadata: %w", res.Err)
}

func (c *Controller) buildRecords(records []metadataRecord) (batch.Batch, error) {
	var b batch.Builder
	b.Reset(batch.BuilderOptions{})
	for _, r := range records {
		key, value, err := r.encode()
		if err != nil {
			return nil, err
		}
		b.Append(c.host.now().UnixMilli(), key, value, nil)
	}
	return b.Finish()
}
