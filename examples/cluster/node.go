package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/billetlog/billet"
)

// openNode opens the log of one node. This is all that makes a service part of the
// cluster. What an operator may want to read goes to the given writer, if the options
// ask for that.
func openNode(o options, messages io.Writer) (*billet.Log, error) {
	var logger *slog.Logger
	if o.log {
		logger = slog.New(slog.NewTextHandler(messages, nil))
	}
	return billet.Open(billet.Config{
		Dir:    o.dir,
		NodeID: o.node,
		Logger: logger,
		Cluster: billet.Cluster{
			Listen:    o.listen,
			Join:      o.join,
			Bootstrap: o.bootstrap,
			// A replica that is behind for that long is not counted on, and tells when
			// it has caught up. The default is meant for larger trouble.
			ReplicaLagTimeMax: 2 * time.Second,
		},
	})
}

// runNode runs one node until ctx ends, with what the options ask it to do.
func runNode(ctx context.Context, o options) (err error) {
	if o.lifeline {
		signal.Ignore(os.Interrupt) // a terminal sends it to all processes; the first one tells the others
		ctx = whileInputLasts(ctx)
	}
	log, err := openNode(o, os.Stderr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	if o.topic || o.produce {
		err = createTopic(ctx, log)
	}
	if err != nil {
		return orEnd(ctx, err)
	}
	if o.lifeline {
		fmt.Println(openedLine)
		<-ctx.Done()
		return nil
	}
	return orEnd(ctx, byHand(ctx, o, log))
}

// orEnd is nil when ctx has ended, which is how a node is stopped.
func orEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// closeTimeout bounds how long a process outlives the one that started it.
const closeTimeout = 15 * time.Second

// whileInputLasts returns a context that ends with standard input. The process ends
// some time after that in any case, so that it cannot be left behind.
func whileInputLasts(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
		time.AfterFunc(closeTimeout, func() { os.Exit(1) })
	}()
	return ctx
}

// byHand is a node in a terminal: it tells what happens.
func byHand(ctx context.Context, o options, log *billet.Log) error {
	fmt.Printf("node %d is open at %s, cluster %s\n", o.node, o.listen, log.ClusterID())
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var roles sync.WaitGroup
	defer roles.Wait()
	role := func(run func() error) {
		roles.Go(func() {
			err := awaitTopic(ctx, log)
			if err == nil {
				err = run()
			}
			if err != nil {
				cancel(err)
			}
		})
	}
	var lines []func() string // what the roles have to tell
	if o.produce {
		l := newLoad(fmt.Sprintf("node %d at %s", o.node, time.Now().Format("15:04:05.000")), o.size, o.rate)
		lines = append(lines, l.tell())
		role(func() error { return l.run(ctx, log) })
	}
	if o.consume {
		r := newReader()
		lines = append(lines, r.tell())
		role(func() error { return r.run(ctx, log) })
	}
	if err := tellChanges(ctx, log, lines); err != nil {
		cancel(err)
	}
	return context.Cause(ctx)
}

// tellEvery is how often a node in a terminal tells how far it is.
const tellEvery = 2 * time.Second

// tellChanges prints the nodes and who leads what whenever that changes, and now and
// then the lines.
func tellChanges(ctx context.Context, log *billet.Log, lines []func() string) error {
	ticker := time.NewTicker(tellEvery)
	defer ticker.Stop()
	var said string
	return until(ctx, "interrupted", func() (bool, error) {
		nodes, err := log.Nodes(ctx)
		if err != nil {
			return false, err
		}
		at, err := lookAt(ctx, log)
		if err != nil {
			return false, err
		}
		if say := describeNodes(nodes) + "; " + at.String(); say != said {
			said = say
			fmt.Println(clock(), say)
		}
		select {
		case <-ticker.C:
			for _, line := range lines {
				fmt.Println(clock(), line())
			}
		default:
		}
		return false, nil
	})
}

func clock() string { return time.Now().Format("15:04:05.0") }

// describeNodes tells which nodes there are and which cannot be reached.
func describeNodes(nodes []billet.NodeInfo) string {
	s := "nodes"
	for _, n := range nodes {
		s += fmt.Sprintf(" %d", n.ID)
		if !n.Reachable {
			s += " (down)"
		}
	}
	return s
}

// tell returns a function that tells what the load did since it was called last.
func (l *load) tell() func() string {
	return func() string {
		s := l.acks.cut(time.Now())
		return fmt.Sprintf("wrote %s records/s, %s in all, %s the longest time without an acknowledgement",
			count(s.rate()), count(l.written.Load()), duration(s.longest()))
	}
}

// tell returns a function that tells what the reader did since it was called last.
func (r *reader) tell() func() string {
	before, then := int64(0), time.Now()
	return func() string {
		n, now := r.consumed.Load(), time.Now()
		s := stretch{acks: n - before, took: now.Sub(then)}
		before, then = n, now
		return fmt.Sprintf("read %s records/s, %s in all, each in order", count(s.rate()), count(n))
	}
}
