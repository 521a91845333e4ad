package billet

import (
	"context"
	"encoding/hex"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/billetlog/billet/replication"
)

// routePartition adapts replication.Route.
type routePartition struct{ *replication.Route }

// NewCursor returns a cursor behind the root's interface.
func (p routePartition) NewCursor() cursor { return p.Route.NewCursor() }

// ReadLocal returns the partition with reads from this node's replica.
func (p routePartition) ReadLocal() partitionLog { return localPartition{p.Route.ReadLocal()} }

// localPartition adapts replication.LocalRoute.
type localPartition struct{ replication.LocalRoute }

// NewCursor returns a cursor behind the root's interface.
func (p localPartition) NewCursor() cursor { return p.LocalRoute.NewCursor() }

// ReadLocal returns the partition itself.
func (p localPartition) ReadLocal() partitionLog { return p }

// controllerCatalog adapts replication.Controller and tells of its changes.
type controllerCatalog struct {
	controller *replication.Controller
	router     *replication.Router
	version    atomic.Uint64

	running sync.WaitGroup // changes, also those that nobody waits for any more
	life    context.Context
	endLife context.CancelFunc

	mu struct {
		sync.Mutex
		closed      bool
		subscribers map[int]chan<- struct{}
		next        int
	}
}

func newControllerCatalog(c *replication.Controller) *controllerCatalog {
	cat := &controllerCatalog{controller: c, router: c.Router()}
	cat.life, cat.endLife = context.WithCancel(context.Background())
	cat.version.Store(1)
	cat.mu.subscribers = map[int]chan<- struct{}{}
	cat.running.Go(cat.watch)
	return cat
}

// watch makes a new version of every change that another node decided.
func (c *controllerCatalog) watch() {
	for {
		changed := c.controller.Changed()
		c.changed()
		select {
		case <-changed:
		case <-c.life.Done():
			return
		}
	}
}

// run makes a change and waits for it as long as ctx allows. The change itself goes
// on when ctx ends, so that it is not left half done; only close ends it.
func run[T any](ctx context.Context, c *controllerCatalog, change func(ctx context.Context) (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	done := make(chan outcome, 1)
	var none T
	c.mu.Lock()
	if c.mu.closed {
		c.mu.Unlock()
		return none, ErrClosed
	}
	c.running.Go(func() {
		value, err := change(c.life)
		if err != nil && c.life.Err() != nil {
			err = fmt.Errorf("%w: %w", ErrClosed, err)
		}
		done <- outcome{value, err}
	})
	c.mu.Unlock()
	select {
	case o := <-done:
		return o.value, o.err
	case <-ctx.Done():
		return none, fmt.Errorf("%w: %w", ErrAmbiguous, ctx.Err())
	}
}

// alter is run for a change of the topics, after which there is a new version.
func (c *controllerCatalog) alter(ctx context.Context, change func(ctx context.Context) error) error {
	_, err := run(ctx, c, func(ctx context.Context) (struct{}, error) {
		defer c.changed()
		return struct{}{}, change(ctx)
	})
	return err
}

// close ends changes under way, waits for them, and refuses others.
func (c *controllerCatalog) close() {
	c.mu.Lock()
	c.mu.closed = true
	c.mu.Unlock()
	c.endLife()
	c.running.Wait()
	c.router.Close()
}

// CreateTopic makes a topic.
func (c *controllerCatalog) CreateTopic(ctx context.Context, name string, partitions, replicas int, config map[string]string) error {
	return c.alter(ctx, func(ctx context.Context) error {
		_, err := c.controller.CreateTopic(ctx, replication.TopicSpec{Name: name, Partitions: partitions, Replicas: replicas, Config: config})
		return err
	})
}

// DeleteTopic deletes a topic.
func (c *controllerCatalog) DeleteTopic(ctx context.Context, name string) error {
	return c.alter(ctx, func(ctx context.Context) error { return c.controller.DeleteTopic(ctx, name) })
}

// AlterTopic changes settings of a topic.
func (c *controllerCatalog) AlterTopic(ctx context.Context, name string, set map[string]string, unset []string) error {
	return c.alter(ctx, func(ctx context.Context) error { return c.controller.AlterTopic(ctx, name, set, unset) })
}

// AddPartitions extends a topic.
func (c *controllerCatalog) AddPartitions(ctx context.Context, name string, total int) error {
	return c.alter(ctx, func(ctx context.Context) error { return c.controller.AddPartitions(ctx, name, total) })
}

// Topics lists the topics by name.
func (c *controllerCatalog) Topics() []topicState {
	topics := c.controller.Topics()
	states := make([]topicState, 0, len(topics))
	for i := range topics {
		states = append(states, stateOf(&topics[i]))
	}
	return states
}

// Topic returns one topic.
func (c *controllerCatalog) Topic(name string) (topicState, bool) {
	t, ok := c.controller.Topic(name)
	if !ok {
		return topicState{}, false
	}
	return stateOf(&t), true
}

func stateOf(t *replication.TopicState) topicState {
	return topicState{ID: hex.EncodeToString(t.ID[:]), Name: t.Name, Internal: t.Internal,
		Partitions: len(t.Partitions), Config: t.Config, MaxMessage: t.Settings.MaxMessageBytes,
		Times: timestampRule{bounded: !t.Settings.LogAppendTime, before: t.Settings.TimestampBeforeMax, after: t.Settings.TimestampAfterMax}}
}

// Partition returns the way to a partition.
func (c *controllerCatalog) Partition(topic string, n int32) (partitionLog, error) {
	r, err := c.router.Route(topic, n)
	if err != nil {
		return nil, err
	}
	return routePartition{r}, nil
}

// NewProducerID returns an id that nobody ever had.
func (c *controllerCatalog) NewProducerID(ctx context.Context) (id int64, epoch int16, err error) {
	identity, err := run(ctx, c, func(ctx context.Context) (i producerIdentity, err error) {
		i.id, i.epoch, err = c.controller.NewProducerID(ctx)
		return i, err
	})
	return identity.id, identity.epoch, err
}

// Version changes after every change of the topics.
func (c *controllerCatalog) Version() uint64 { return c.version.Load() }

// changed makes a new version. It also follows changes that failed, since they
// may have happened in part.
func (c *controllerCatalog) changed() {
	c.version.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, ch := range c.mu.subscribers {
		signal(ch)
	}
}

// Notify makes a non-blocking send on ch after every change.
func (c *controllerCatalog) Notify(ch chan<- struct{}) (cancel func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := c.mu.next
	c.mu.next++
	c.mu.subscribers[id] = ch
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.mu.subscribers, id)
	}
}
