package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/billetlog/billet"
)

const (
	processes = 3
	client    = processes + 1 // the node id of this process
)

// The bounds of the drill's waits.
const (
	startTimeout   = time.Minute // until there is a cluster with a topic
	catchUpTimeout = time.Minute // until a node that was started again is in sync
	readTimeout    = time.Minute // until the last record is read
)

// drill is the whole run: three processes, a load, and a crash.
type drill struct {
	options
	fleet    *fleet
	log      *billet.Log // of the client
	messages *os.File    // with what that logs
	load     *load
	reader   *reader
	tell     *progress

	report
}

// runDrill runs the drill. Its directories stay if it is asked to keep them, or if
// something was wrong.
func runDrill(ctx context.Context, o options) (err error) {
	ctx, stop := context.WithTimeoutCause(ctx, o.timeout, fmt.Errorf("it took longer than %v", o.timeout))
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	d := &drill{options: o, reader: newReader(), tell: newProgress()}
	defer d.tell.stop()
	if d.fleet, err = newFleet(processes, cancel); err != nil {
		return err
	}
	defer func() {
		d.fleet.kill()
		if d.messages != nil {
			err = errors.Join(err, d.messages.Close())
		}
		switch cause := context.Cause(ctx); {
		case o.keep, err != nil && !errors.Is(cause, context.Canceled):
			d.tell.say("kept       %s", d.fleet.root)
		default:
			err = errors.Join(err, d.fleet.remove())
		}
	}()
	if err := d.start(ctx); err != nil {
		return first(ctx, err)
	}
	err = first(ctx, d.crash(ctx, cancel))
	begin := time.Now()
	err = errors.Join(err, d.log.Close())
	if err != nil {
		return err
	}
	if err := d.fleet.stop(); err != nil {
		return err
	}
	d.tell.say("closed     all nodes, in %s", duration(time.Since(begin)))
	return nil
}

// first is why ctx ended, if it has: what failed first made everything else fail.
func first(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && err != nil {
		return cause
	}
	return err
}

// start runs the processes and joins them as the client, which gets no replicas:
// the topic is there already.
func (d *drill) start(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	begin := time.Now()
	if err := d.fleet.start(ctx); err != nil {
		return err
	}
	d.tell.say("started    %d processes, one cluster with topic %q after %s", processes, topic, duration(time.Since(begin)))
	begin = time.Now()
	o := options{node: client, dir: filepath.Join(d.fleet.root, "client"), log: true, listen: d.fleet.addresses[processes], join: d.fleet.addresses[:processes]}
	if d.messages, err = os.Create(o.dir + ".log"); err != nil {
		return err
	}
	if d.log, err = openNode(o, d.messages); err != nil {
		return err
	}
	if err := awaitTopic(ctx, d.log); err != nil {
		return errors.Join(err, d.log.Close())
	}
	d.tell.say("joined     as node %d, which has no replicas, in %s", client, duration(time.Since(begin)))
	return nil
}

// crash lets a process crash under load and checks what came of it.
func (d *drill) crash(ctx context.Context, fail context.CancelCauseFunc) error {
	d.load = newLoad("the drill", d.size, d.rate)
	d.tell.follow(d)
	defer d.tell.follow(nil)
	var work sync.WaitGroup
	reading, stopReading := context.WithCancel(ctx)
	writing, stopWriting := context.WithCancel(ctx)
	defer work.Wait()
	defer stopReading()
	defer stopWriting()
	written := make(chan error, 1)
	work.Go(func() {
		if err := d.reader.run(reading, d.log); err != nil {
			fail(err)
		}
	})
	work.Go(func() {
		err := d.load.run(writing, d.log)
		if err != nil {
			fail(err)
		}
		written <- err
	})
	if err := d.play(ctx); err != nil {
		return err
	}
	stopWriting()
	if err := <-written; err != nil {
		return err
	}
	return d.check(ctx)
}

// play is what happens during the load.
func (d *drill) play(ctx context.Context) (err error) {
	if err := pause(ctx, d.phase/5); err != nil { // the first records are slower
		return err
	}
	d.load.acks.cut(time.Now())
	if err := pause(ctx, d.phase); err != nil {
		return err
	}
	d.before = d.load.acks.cut(time.Now())
	if d.was, err = lookAt(ctx, d.log); err != nil {
		return err
	}
	d.tell.say("load       %s", d.before)
	d.tell.say("           %v", d.was)

	victim := d.fleet.process(d.was.most())
	if err := victim.kill(); err != nil {
		return err
	}
	d.tell.say("killed     node %d, which led %d of %d partitions", victim.id, len(d.was.leads(victim.id)), partitions)
	if err := pause(ctx, d.phase); err != nil {
		return err
	}
	if err := d.awaitInSync(ctx, victim.id, 0); err != nil {
		return err
	}
	d.during = d.load.acks.cut(time.Now())
	if d.is, err = lookAt(ctx, d.log); err != nil {
		return err
	}
	d.tellFailover()

	if err := d.restart(ctx, victim); err != nil {
		return err
	}
	if err := pause(ctx, d.phase); err != nil {
		return err
	}
	d.after = d.load.acks.cut(time.Now())
	at, err := lookAt(ctx, d.log)
	d.tell.say("load       %s", d.after)
	d.tell.say("           %v", at)
	return err
}

// restart starts a process again, on its directory, and waits until its replicas have
// all that they missed.
func (d *drill) restart(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	begin := time.Now()
	if err := p.start(); err != nil {
		return err
	}
	if err := p.open(ctx); err != nil {
		return err
	}
	d.opened = time.Since(begin)
	if err := d.awaitInSync(ctx, p.id, partitions); err != nil {
		return err
	}
	d.caughtUp = time.Since(begin)
	d.catchUp = d.load.acks.cut(time.Now())
	d.tell.say("restarted  node %d on its directory: open after %s, in sync on all partitions after %s", p.id, duration(d.opened), duration(d.caughtUp))
	d.tell.say("           meanwhile %s", d.catchUp)
	return nil
}

// awaitInSync waits until the leaders say that a node has what it should have, on so
// many partitions.
func (d *drill) awaitInSync(ctx context.Context, node int32, partitions int) error {
	return until(ctx, fmt.Sprintf("node %d is in sync on %d partitions", node, partitions), func() (bool, error) {
		at, err := lookAt(ctx, d.log)
		return at.inSync(node) == partitions, err
	})
}

// check waits for the last record and compares what was read with what was
// acknowledged.
func (d *drill) check(ctx context.Context) error {
	acknowledged, total := d.load.acknowledged()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	err := until(ctx, fmt.Sprintf("all %s acknowledged records are read", count(int64(total))), func() (bool, error) {
		return d.reader.count(d.load.name) >= total, nil
	})
	if err := errors.Join(err, d.reader.compare(d.load.name, acknowledged)); err != nil {
		return fmt.Errorf("the check failed: %w", err)
	}
	d.tell.say("checked    %s records were acknowledged; each was read exactly once, in order, at its offset", count(int64(total)))
	return nil
}

// pause waits for d.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
