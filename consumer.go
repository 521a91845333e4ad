package billet

import (
	"context"
	"fmt"
	"iter"
	"sync"
)

// Consumer reads partitions in order, remembering a position in each. Poll and
// Records are for one goroutine at a time; the other methods may be called from
// any, also while Poll waits. Make one with Log.NewConsumer and Close it.
//
// With ConsumerConfig.Group it is a member of a consumer group (KIP-848), of which
// Kafka clients can be members too: the group's coordinator spreads the partitions
// over the members, and keeps the positions that they commit. Each record is
// returned to one member at least; to another one again when the first went away, or
// lost its place, before it had committed. A partition moves between two Polls, when
// the records of the first one have been dealt with; partitions that stay go on
// meanwhile. Callbacks come from within Poll, and from Close; Log.Close closes all
// consumers at the same time.
//
// Without a group its positions end with it, and it reads what it is assigned.
type Consumer struct {
	config  ConsumerConfig
	catalog catalog
	release func(*Consumer) // takes it off the Log's list
	// wake has a signal when there may be something new.
	wake   chan struct{}
	closed chan struct{}
	cancel func()      // ends the catalog's signals
	group  *membership // nil without a group

	poll sync.Mutex // held by Poll

	mu struct {
		sync.Mutex
		closed     bool
		version    uint64            // of the catalog, as last seen
		subscribed map[string]string // topics read whole, to their ids
		assigned   []*assignment     // in the order they are read
		byKey      map[assignmentKey]*assignment
		next       int     // in assigned
		errs       []error // for the next Polls

		// What the last Poll handed out is in these.
		records []Record
		buffer  []byte
		used    int // bytes of buffer
		decoder decoder
		current *assignment // whose batches the decoder has, or nil
		// unyielded are records of the last Poll that an iteration has not come to.
		unyielded []Record
	}
}

type assignmentKey struct {
	topic     string
	partition int32
}

// assignment is one partition that a consumer reads.
type assignment struct {
	assignmentKey
	topicID  string
	log      partitionLog
	cursor   cursor
	cancel   func() // ends the partition's signals
	position int64  // of the next record
	done     int64  // the position when Poll was called last: what is below is dealt with; -1: it was not called yet
	// unplaced says that the position is not known yet, since the partition's
	// leader has not been heard of: then it will be as place says.
	unplaced bool
	place    StartAt
	paused   bool
	failed   bool // not read until sought or resumed; Poll has told why
}

func newConsumer(cat catalog, g groups, config ConsumerConfig, release func(*Consumer)) (*Consumer, error) {
	config.EnsureDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	c := &Consumer{config: config, catalog: cat, release: release,
		wake: make(chan struct{}, 1), closed: make(chan struct{})}
	c.mu.subscribed = map[string]string{}
	c.mu.byKey = map[assignmentKey]*assignment{}
	c.mu.version = cat.Version()
	c.cancel = cat.Notify(c.wake)
	if config.Group != "" {
		c.group = newMembership(c, g)
		return c, nil
	}
	err := error(nil)
	for _, topic := range config.Topics {
		if err == nil {
			err = c.Assign(topic)
		}
	}
	for topic, partitions := range config.Assign {
		if err == nil && len(partitions) > 0 {
			err = c.Assign(topic, partitions...)
		}
	}
	if err != nil {
		c.release = nil
		c.shut()
		return nil, err
	}
	return c, nil
}

// Poll returns the next records of the assigned partitions, waiting until there
// is at least one. Partitions take turns; within one, records come in order of
// their offsets.
//
// The records and all they refer to are valid until the next Poll or Close: use
// Record.Clone to keep one. Every batch's checksum is verified.
//
// An error that concerns one partition is returned once and names it; the
// partition is then left out until it is sought or resumed, and others go on.
// Errors: ctx's own; *OffsetError; ErrCorrupt; ErrQuarantined; ErrUnknownTopic
// when a topic was deleted, whose partitions are then no longer assigned;
// ErrConcurrentPoll; ErrClosed.
func (c *Consumer) Poll(ctx context.Context) ([]Record, error) {
	if !c.poll.TryLock() {
		if c.group != nil && c.group.isClosing() {
			return nil, fmt.Errorf("billet: poll: %w: make a new Consumer", ErrClosed)
		}
		return nil, fmt.Errorf("billet: poll: %w: use one Consumer for each goroutine", ErrConcurrentPoll)
	}
	defer c.poll.Unlock()
	closing := c.closed
	if c.group != nil {
		closing = c.group.closing
		c.group.begin()
		defer c.group.pause()
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := c.rebalance(); err != nil {
			return nil, err
		}
		records, err := c.fetch()
		if len(records) > 0 || err != nil {
			return records, err
		}
		select {
		case <-c.wake:
		case <-closing:
		case <-ctx.Done():
		}
	}
}

// rebalance does what the group wants, now that all records that were returned have
// been dealt with.
func (c *Consumer) rebalance() error {
	if c.group == nil {
		return nil
	}
	if c.group.isClosing() {
		return fmt.Errorf("billet: poll: %w: make a new Consumer", ErrClosed)
	}
	c.mu.Lock()
	c.mu.unyielded = nil
	for _, a := range c.mu.assigned {
		if !a.unplaced {
			a.done = a.position
		}
	}
	c.mu.Unlock()
	return c.group.rebalance()
}

// Records returns an iterator over Poll: it yields record after record, or an
// error of Poll. It ends after an error of ctx or ErrClosed, and goes on after one
// that concerns a single partition, unless the loop is left. A record is valid
// until the next is asked for. Records not yielded when the loop is left are
// returned again by the next Poll.
func (c *Consumer) Records(ctx context.Context) iter.Seq2[Record, error] {
	return func(yield func(Record, error) bool) {
		for {
			records, err := c.Poll(ctx)
			if err != nil {
				if !yield(Record{}, err) || isFinal(ctx, err) {
					return
				}
				continue
			}
			for i := range records {
				c.yields(records[i+1:])
				if !yield(records[i], nil) {
					c.giveBack(records[i+1:])
					return
				}
			}
		}
	}
}

// yields says that an iteration has not come to these records yet.
func (c *Consumer) yields(rest []Record) {
	if c.group != nil {
		c.mu.Lock()
		c.mu.unyielded = rest
		c.mu.Unlock()
	}
}

// giveBack sets positions back to the first of records in each partition.
func (c *Consumer) giveBack(records []Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.unyielded = nil
	for i := len(records) - 1; i >= 0; i-- {
		r := &records[i]
		if a := c.mu.byKey[assignmentKey{r.Topic, r.Partition}]; a != nil {
			c.moveLocked(a, r.Offset)
		}
	}
}

// Close ends the consumer. A Poll under way returns ErrClosed. Records of the last
// Poll stay valid only as long as nobody calls Poll, which nobody can.
//
// A consumer in a group commits its positions, unless CommitInterval is negative, gives
// up its partitions and leaves, which takes up to five seconds when the coordinator
// cannot be reached. It must not be called from a callback.
func (c *Consumer) Close() error {
	if c.group != nil {
		c.group.close()
	}
	c.shut()
	return nil
}

func (c *Consumer) shut() {
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		return
	}
	c.mu.closed = true
	for _, a := range c.mu.assigned {
		a.close()
	}
	c.mu.assigned = nil
	clear(c.mu.byKey)
	c.mu.current = nil
	close(c.closed)
	c.mu.Unlock()
	c.cancel()
	if c.release != nil {
		c.release(c)
	}
}

func (a *assignment) close() {
	a.cancel()
	a.cursor.Close()
}
