package broker

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/billetlog/billet/group"
	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/replication"
)

// offsetsLog is a replica of a partition of OffsetsTopic.
type offsetsLog interface {
	// Epoch is the one in which it leads, or 0.
	Epoch() int32
	StartOffset() int64
	HighWatermark() int64
	// NewCursor reads committed batches.
	NewCursor() offsetsCursor
	// Notify makes it send on ch whenever something has changed.
	Notify(ch chan<- struct{}) (cancel func())
	// Append stores a batch. done is called once, and must not block.
	Append(b batch.Batch, o replication.AppendOptions, done func(replication.AppendResult))
	// Trim takes away what is before an offset.
	Trim(ctx context.Context, before int64) error
	// Suspect is told of what cannot be read.
	Suspect(offset int64)
}

// offsetsCursor reads an offsetsLog.
type offsetsCursor interface {
	Read(dst []byte, offset int64, maxBytes int) ([]byte, error)
	Close()
}

// replica is a replication.Partition as an offsetsLog.
type replica struct {
	*replication.Partition
	controller *replication.Controller
}

// Trim takes away what is before an offset.
func (r replica) Trim(ctx context.Context, before int64) error {
	_, err := r.controller.TrimInternal(ctx, OffsetsTopic, r.Spec().Partition, before)
	return err
}

// NewCursor makes a reader.
func (r replica) NewCursor() offsetsCursor { return r.Partition.NewCursor() }

// loadBytes is how much of the log is read at a time.
const loadBytes = 1 << 20

// load makes a core of what the log holds, in an epoch in which nothing is in flight. It
// ends early with ctx, and when the epoch does.
func (c *coordinator) load(ctx context.Context, epoch int32) (*group.Core, error) {
	core, err := group.New(c.env.options)
	if err != nil {
		return nil, err
	}
	cursor := c.log.NewCursor()
	defer cursor.Close()
	var buf []byte
	var r batch.Reader
	end := c.log.HighWatermark()
	for at := c.log.StartOffset(); at < end; {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if c.log.Epoch() != epoch {
			return nil, errMoved
		}
		if buf, err = cursor.Read(buf[:0], at, loadBytes); err != nil {
			return nil, err
		}
		from := at
		for rest := buf; len(rest) > 0; {
			var b batch.Batch
			if b, rest, err = batch.Split(rest, 0); err == nil {
				err = c.apply(core, &r, b)
			}
			if err != nil {
				c.log.Suspect(at)
				return nil, fmt.Errorf("the batch at %d: %w", at, err)
			}
			at = b.NextOffset()
		}
		if at == from {
			return nil, fmt.Errorf("nothing at %d, before the end at %d", at, end)
		}
	}
	return core, nil
}

// apply gives a core the records of a batch. What is no coordinator's record is left
// out: it must not keep all groups of the partition from working.
func (c *coordinator) apply(core *group.Core, r *batch.Reader, b batch.Batch) error {
	if err := b.CheckCRC(); err != nil {
		return err
	}
	if b.IsControl() {
		return nil
	}
	if err := r.Reset(b, 0); err != nil {
		return err
	}
	var record batch.Record
	for r.Next(&record) {
		value := bytes.Clone(record.Value) // the core keeps parts of it
		if err := core.Apply(time.UnixMilli(record.Timestamp), group.Record{Key: record.Key, Value: value}); err != nil {
			c.env.logger.Warn("a record of the groups was left out", "partition", c.number, "offset", record.Offset, "err", err)
		}
	}
	return r.Err()
}
