package billet

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// inflatedMax bounds the bytes of decompressed records that one Poll returns,
// up to one batch.
const inflatedMax = 16 << 20

// isFinal tells whether an error of Poll ends an iteration.
func isFinal(ctx context.Context, err error) bool {
	return ctx.Err() != nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrConcurrentPoll)
}

// fetch returns what is there without waiting, or an error that is due.
func (c *Consumer) fetch() ([]Record, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := &c.mu
	if m.closed {
		return nil, fmt.Errorf("billet: poll: %w: make a new Consumer", ErrClosed)
	}
	if version := c.catalog.Version(); version != m.version {
		m.version = version
		c.followTopicsLocked()
	}
	if len(m.errs) == 0 {
		m.records = c.decodeLocked(m.records[:0])
		if len(m.records) > 0 {
			return m.records, nil
		}
	}
	if len(m.errs) > 0 {
		err := m.errs[0]
		m.errs = slices.Delete(m.errs, 0, 1)
		return nil, err
	}
	return nil, nil
}

// decodeLocked fills out from partition after partition, until each had its turn
// or a bound is reached. The first one read is the one after the last Poll's.
func (c *Consumer) decodeLocked(out []Record) []Record {
	m := &c.mu
	limit := c.config.MaxPollRecords
	if limit == 0 {
		limit = int(^uint(0) >> 1)
	}
	m.decoder.release()
	inflated, turns := 0, len(m.assigned)
	for len(out) < limit && inflated < inflatedMax {
		if m.current != nil {
			n, used := len(out), m.decoder.used
			out = c.decodeCurrentLocked(out, limit)
			if m.decoder.used > used {
				for i := n; i < len(out); i++ {
					inflated += len(out[i].Key) + len(out[i].Value)
				}
			}
			continue
		}
		if len(out) == 0 {
			m.used = 0 // nothing in the buffer is in use
		}
		if turns == 0 || m.used >= c.config.MaxPollBytes {
			break
		}
		turns--
		m.next = (m.next + 1) % len(m.assigned)
		a := m.assigned[m.next]
		if !a.paused && !a.failed {
			c.readLocked(a)
		}
	}
	return out
}

// decodeCurrentLocked takes records of one batch from the decoder.
func (c *Consumer) decodeCurrentLocked(out []Record, limit int) []Record {
	m := &c.mu
	a, d := m.current, &m.decoder
	out, ok, err := d.next(out, limit-len(out))
	a.position = d.from
	if d.reader == nil {
		a.position = max(a.position, d.end)
	}
	if err != nil {
		a.position = d.from
		suspect(a.cursor, d.end, err)
		c.failLocked(a, err)
	}
	if !ok || err != nil || !d.pending() {
		m.current = nil
		d.reset("", 0, nil, 0)
	}
	return out
}

// readLocked gives the decoder what the partition has at its position.
func (c *Consumer) readLocked(a *assignment) {
	m := &c.mu
	if !a.settle() || a.position == a.log.HighWatermark() {
		return
	}
	if m.buffer == nil {
		m.buffer = make([]byte, c.config.MaxPollBytes)
	}
	room := m.buffer[m.used:]
	bytes, err := readBatches(a.cursor, room[:0:len(room)], a.log, a.position, c.config.MaxPollBytes-m.used)
	if errors.Is(err, ErrOffsetOutOfRange) && c.config.OnOutOfRange != FailOutOfRange {
		a.position = a.log.HighWatermark()
		if c.config.OnOutOfRange == ResetToEarliest {
			a.position = a.log.StartOffset()
		}
		bytes, err = readBatches(a.cursor, room[:0:len(room)], a.log, a.position, c.config.MaxPollBytes-m.used)
	}
	if err != nil {
		c.failLocked(a, err)
		return
	}
	if len(bytes) == 0 {
		return
	}
	m.used += len(bytes)
	m.current = a
	m.decoder.reset(a.topic, a.partition, bytes, a.position)
}

// failLocked leaves the partition out and keeps the error for Poll. Of a deleted
// topic followTopicsLocked tells.
func (c *Consumer) failLocked(a *assignment, err error) {
	var out *OffsetError
	if errors.As(err, &out) {
		out.Topic, out.Partition = a.topic, a.partition
	}
	a.failed = true
	if state, ok := c.catalog.Topic(a.topic); !ok || state.ID != a.topicID {
		c.followTopicsLocked()
		return
	}
	c.mu.errs = append(c.mu.errs, fmt.Errorf("billet: read %s/%d at %d: %w", a.topic, a.partition, a.position, err))
}

// followTopicsLocked adds new partitions of subscribed topics and drops those of
// deleted ones, of which it tells once.
func (c *Consumer) followTopicsLocked() {
	m := &c.mu
	var gone []string
	for _, a := range slices.Clone(m.assigned) {
		if state, ok := c.catalog.Topic(a.topic); !ok || state.ID != a.topicID {
			c.dropLocked(a)
			if !slices.Contains(gone, a.topic) {
				gone = append(gone, a.topic)
			}
		}
	}
	for _, topic := range gone {
		delete(m.subscribed, topic)
		if c.group != nil {
			continue // its coordinator sees it too
		}
		m.errs = append(m.errs, fmt.Errorf("billet: read topic %q: %w: the topic was deleted and is no longer assigned", topic, ErrUnknownTopic))
	}
	for topic := range m.subscribed {
		state, ok := c.catalog.Topic(topic)
		if !ok {
			continue
		}
		for n := range state.Partitions {
			if m.byKey[assignmentKey{topic, int32(n)}] != nil {
				continue
			}
			if err := c.addLocked(&state, int32(n), Earliest); err != nil {
				m.errs = append(m.errs, err)
			}
		}
	}
}
