package replication

import (
	"context"
	"errors"
	"fmt"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/segment"
)

// The metadata partition as a log: how the controller writes records and follows them.

// write appends a record to the metadata, waits until it is committed, and brings the view up to it. After an error view.stale says whether the
// record may be there all the same.
func (c *Controller) write(ctx context.Context, r metadataRecord) error {
	key, value, err := r.encode()
	if err != nil {
		return err
	}
	for {
		if err := c.metadata.Writable(ctx); err != nil {
			return err
		}
		b, err := c.buildRecord(key, value)
		if err != nil {
			return err
		}
		freed := make(chan struct{}, 1)
		cancel := c.metadata.Notify(freed)
		done := make(chan AppendResult, 1)
		c.metadata.Append(b, AppendOptions{Acks: AcksAll}, func(res AppendResult) { done <- res })
		retry, err := c.await(ctx, done, freed)
		cancel()
		if !retry {
			return err
		}
	}
}

// await waits for a record's answer; retry says that it was certainly not written and may be tried again.
func (c *Controller) await(ctx context.Context, done chan AppendResult, freed <-chan struct{}) (retry bool, err error) {
	var res AppendResult
	select {
	case res = <-done:
	case <-ctx.Done():
		c.view.open, c.view.stale = done, true
		return false, fmt.Errorf("%w: writing the cluster's metadata: %w", ErrAmbiguous, context.Cause(ctx))
	}
	switch {
	case res.Err == nil:
		if err := c.readView(ctx); err != nil {
			c.view.stale = true
			return false, err
		}
		return false, nil
	case errors.Is(res.Err, ErrNotLeader):
		return true, nil
	case errors.Is(res.Err, ErrBusy):
		select {
		case <-freed:
			return true, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
	c.view.stale = c.view.stale || errors.Is(res.Err, ErrAmbiguous)
	return false, fmt.Errorf("writing the cluster's metadata: %w", res.Err)
}

func (c *Controller) buildRecord(key, value []byte) (batch.Batch, error) {
	var b batch.Builder
	b.Reset(batch.BuilderOptions{})
	b.Append(c.host.now().UnixMilli(), key, value, nil)
	return b.Finish()
}

// readView applies what is committed and not yet read.
func (c *Controller) readView(context.Context) error {
	var r batch.Reader
	for c.view.next < c.metadata.HighWatermark() {
		buf, err := c.view.cursor.Read(c.view.buf[:0], c.view.next, metadataReadSize)
		if err != nil {
			return err
		}
		c.view.buf = buf
		for len(buf) > 0 {
			b, rest, err := batch.Split(buf, len(buf))
			if err == nil {
				err = b.CheckCRC()
			}
			if err == nil {
				err = r.Reset(b, maxMessageBytesMax)
			}
			if err != nil {
				return fmt.Errorf("%w: cluster metadata at offset %d: %w", segment.ErrCorrupt, c.view.next, err)
			}
			var rec batch.Record
			for r.Next(&rec) {
				if err := c.apply(rec.Key, rec.Value); err != nil {
					return fmt.Errorf("cluster metadata at offset %d: %w", rec.Offset, err)
				}
			}
			if err := r.Err(); err != nil {
				return fmt.Errorf("%w: cluster metadata at offset %d: %w", segment.ErrCorrupt, c.view.next, err)
			}
			buf, c.view.next = rest, b.NextOffset()
		}
	}
	return nil
}

// catchUp finds out what became of a record whose writer did not learn it, and follows.
func (c *Controller) catchUp(ctx context.Context) error {
	if c.view.open != nil {
		select {
		case <-c.view.open:
			c.view.open = nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	// Who leads has applied all that earlier leaders left.
	if err := c.metadata.Writable(ctx); err != nil {
		return err
	}
	if err := c.readView(ctx); err != nil {
		return err
	}
	c.view.stale = false
	c.mu.Lock()
	for id, parts := range c.mu.starting { // their record was not written
		c.mu.gone = append(c.mu.gone, parts...)
		delete(c.mu.starting, id)
	}
	c.mu.Unlock()
	for _, t := range c.Topics() {
		if !t.Internal {
			c.apportion(t.Name, t.Settings)
		}
	}
	return c.removeGone(ctx)
}
