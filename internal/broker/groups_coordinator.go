package broker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/group"
	"github.com/billetlog/billet/internal/kerr"
	"github.com/billetlog/billet/transport/kafka"
)

// Bounds of a coordinator.
const (
	queueMax   = 1024    // requests that it has not looked at; others wait for a place
	waitingMax = 100_000 // requests that wait for members or for the log
)

// The pause before a partition is loaded again doubles between these.
const (
	pauseMin = 50 * time.Millisecond
	pauseMax = 5 * time.Second
)

// Why the tenure of a core ends.
var (
	errMoved = errors.New("broker: the partition is not led here any more")
	errEnded = errors.New("broker: the coordinator is closed")
)

// environment is what all coordinators share.
type environment struct {
	options group.Options
	now     func() time.Time
	logger  *slog.Logger
	topics  *topicsView

	tidyMin      int64 // records of a log that is not rewritten yet
	tidyInterval time.Duration
}

// coordinator answers for the groups of one partition of OffsetsTopic while this node
// leads it. One goroutine runs it. In each epoch it has a core of its own, and another
// one after a write whose fate is not known.
type coordinator struct {
	env    *environment
	number int32
	log    offsetsLog
	wake   chan struct{} // one place: something is to be looked at
	places chan struct{} // in the queue

	mu struct {
		sync.Mutex
		refusal int16 // what requests are told; NONE: they are queued
		queue   []*asked
		landed  []landing // appends that were answered
	}
}

// asked is a request that is not answered, or somebody who wants to see the core.
type asked struct {
	from   kafka.Client
	body   kmsg.Request
	look   func(*group.Core)  // unless nil there is no body, and the answer is nil
	answer chan kmsg.Response // one place
}

// failure is the answer that says nothing but the code.
func (a *asked) failure(code int16) kmsg.Response {
	if a.look != nil {
		return nil
	}
	return group.Failure(a.body, code)
}

func newCoordinator(env *environment, number int32, log offsetsLog) *coordinator {
	c := &coordinator{env: env, number: number, log: log, wake: make(chan struct{}, 1), places: make(chan struct{}, queueMax)}
	c.mu.refusal = kerr.NOT_COORDINATOR
	return c
}

func (c *coordinator) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// ask answers a request.
func (c *coordinator) ask(ctx context.Context, from kafka.Client, body kmsg.Request) kmsg.Response {
	return c.submit(ctx, from, body).await(ctx)
}

// submit hands a request over, and waits for a place to do so.
func (c *coordinator) submit(ctx context.Context, from kafka.Client, body kmsg.Request) *asked {
	return c.enqueue(ctx, &asked{from: from, body: body, answer: make(chan kmsg.Response, 1)})
}

// look shows somebody the core, on the goroutine of that; nobody when there is none.
func (c *coordinator) look(ctx context.Context, f func(*group.Core)) *asked {
	return c.enqueue(ctx, &asked{look: f, answer: make(chan kmsg.Response, 1)})
}

func (c *coordinator) enqueue(ctx context.Context, a *asked) *asked {
	select {
	case c.places <- struct{}{}:
	case <-ctx.Done():
		return a
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.refusal != kerr.NONE {
		<-c.places
		a.answer <- a.failure(c.mu.refusal)
		return a
	}
	c.mu.queue = append(c.mu.queue, a)
	c.signal()
	return a
}

// await returns the answer. Nobody hears what is said when ctx ends first.
func (a *asked) await(ctx context.Context) kmsg.Response {
	select {
	case r := <-a.answer:
		return r
	case <-ctx.Done():
		return a.failure(kerr.COORDINATOR_NOT_AVAILABLE)
	}
}

// next takes a request off the queue; nil when there is none.
func (c *coordinator) next() *asked {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.mu.queue) == 0 {
		return nil
	}
	a := c.mu.queue[0]
	c.mu.queue[0] = nil
	if c.mu.queue = c.mu.queue[1:]; len(c.mu.queue) == 0 {
		c.mu.queue = nil
	}
	<-c.places
	return a
}

// admit lets requests in.
func (c *coordinator) admit() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.refusal = kerr.NONE
}

// refuse answers the requests that wait, and those that come, with a code.
func (c *coordinator) refuse(code int16) {
	c.mu.Lock()
	c.mu.refusal = code
	c.mu.Unlock()
	for a := c.next(); a != nil; a = c.next() {
		a.answer <- a.failure(code)
	}
}

// refusal is what requests are told; NONE when they are taken.
func (c *coordinator) refusal() int16 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.refusal
}

// serve runs the coordinator until ctx ends.
func (c *coordinator) serve(ctx context.Context) {
	defer c.log.Notify(c.wake)()
	defer c.refuse(kerr.NOT_COORDINATOR)
	var base *topics // whose deletion is known, up to here, to be in the log
	var last int32
	pause := pauseMin
	for ctx.Err() == nil {
		epoch := c.log.Epoch()
		if epoch == 0 {
			c.refuse(kerr.NOT_COORDINATOR)
			c.sleep(ctx, time.Time{})
			continue
		}
		if epoch != last {
			base, last, pause = c.env.topics.get(), epoch, pauseMin
		}
		t := &tenure{c: c, epoch: epoch, base: base, since: c.env.now()}
		err := t.run(ctx)
		base = t.base
		if ctx.Err() != nil || c.log.Epoch() != epoch {
			continue
		}
		if c.env.now().Sub(t.since) > 2*pauseMax {
			pause = pauseMin
		}
		c.env.logger.Warn("the groups of a partition are read again", "partition", c.number, "epoch", epoch, "after", pause, "err", err)
		c.rest(ctx, epoch, pause)
		pause = min(2*pause, pauseMax)
	}
}

// rest waits, for no longer than the epoch lasts.
func (c *coordinator) rest(ctx context.Context, epoch int32, pause time.Duration) {
	until := c.env.now().Add(pause)
	for ctx.Err() == nil && c.log.Epoch() == epoch && c.env.now().Before(until) {
		c.sleep(ctx, until)
	}
}

// sleep waits for a signal, or until the given time unless that is zero.
func (c *coordinator) sleep(ctx context.Context, until time.Time) {
	var due <-chan time.Time
	if !until.IsZero() {
		timer := time.NewTimer(until.Sub(c.env.now()))
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-c.wake:
	case <-due:
	case <-ctx.Done():
	}
}
