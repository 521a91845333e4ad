package billet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/billetlog/billet/internal/invariants"
)

// wireGroups are the groups that Kafka clients form, with what their members are told.
var wireGroups = []struct {
	name string
	opts []kgo.Opt
}{
	{"classic", []kgo.Opt{kgo.Balancers(kgo.CooperativeStickyBalancer())}},
	{"consumer", []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}},
}

// wireLoad are the clients of a rig at work.
type wireLoad struct {
	*wireRig
	members []*wireClient
	names   []string // of the groups
	unwatch func()
}

func startWireLoad(r *wireRig) *wireLoad {
	l := &wireLoad{wireRig: r}
	r.produce("once")
	r.produce("plain", kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	for _, g := range wireGroups {
		for n := range 2 {
			l.members = append(l.members, r.member(g.name, n, g.opts...))
		}
		l.names = append(l.names, g.name)
	}
	if r.local {
		l.names = append(l.names, wireLocal)
	}
	l.stable(l.members...)
	l.settle(l.names...)
	l.unwatch = r.watch(l.names...)
	return l
}

// strike does something to a node while clients work, has it come back, and waits until
// all is well. Members of stable groups notice nothing.
func (l *wireLoad) strike(what string, id int32, do, undo func(id int32)) {
	l.t.Helper()
	before := moved(l.members)
	l.note("--- %s, node %d", what, id)
	pauseFor(l.t.Context(), 300*time.Millisecond)
	do(id)
	pauseFor(l.t.Context(), time.Second)
	l.settle(l.names...)
	undo(id)
	pauseFor(l.t.Context(), 500*time.Millisecond)
	l.settle(l.names...)
	if n := moved(l.members) - before; n != 0 && !l.silent {
		l.fail("%s: members of Kafka's groups got or lost %d partitions", what, n)
	}
	l.whole(wireTopic, wireNodes)
	l.whole(wireOffsets, wireNodes)
}

func (l *wireLoad) startAgain(id int32) {
	l.start(id)
	l.opened(id)
}

func (l *wireLoad) end() {
	l.t.Helper()
	l.settle(l.names...)
	l.unwatch()
	l.check()
}

// TestKafkaKilled kills the nodes that lead and coordinate under Kafka clients.
func TestKafkaKilled(t *testing.T) {
	l := startWireLoad(startWireRig(t))
	l.strike("who leads is killed", l.leader(), l.kill, l.startAgain)
	l.strike("who coordinates is killed", l.coordinator("classic"), l.kill, l.startAgain)
	l.strike("who coordinates is closed", l.coordinator("consumer"), l.shut, l.startAgain)
	l.end()
}

// TestSlowKafkaKilled does so again and again, and stops nodes for longer than a session.
func TestSlowKafkaKilled(t *testing.T) {
	if !slow() {
		t.Skip("it takes long: set BILLET_SLOW")
	}
	l := startWireLoad(startWireRig(t))
	nothing := func(int32) {}
	for range 4 {
		l.strike("who leads is killed", l.leader(), l.kill, l.startAgain)
		l.strike("the classic group's coordinator is killed", l.coordinator("classic"), l.kill, l.startAgain)
		l.strike("the consumer group's coordinator is killed", l.coordinator("consumer"), l.kill, l.startAgain)
		l.strike("who leads is stopped", l.leader(), func(id int32) { l.pause(id, wireSession/2) }, nothing)
		l.strike("who coordinates is closed", l.coordinator("consumer"), l.shut, l.startAgain)
	}
	l.mu.Lock()
	l.silent = true // clients wait for its answers until they are taken for dead
	l.mu.Unlock()
	for range 2 {
		l.strike("the classic group's coordinator is stopped", l.coordinator("classic"), func(id int32) { l.pause(id, wireSession+2*time.Second) }, nothing)
		l.strike("the consumer group's coordinator is stopped", l.coordinator("consumer"), func(id int32) { l.pause(id, wireSession+2*time.Second) }, nothing)
	}
	l.end()
}

// TestSlowKafkaFaults kills, stops and closes nodes faster than a cluster gets whole, a
// majority of them among it. Members may move: a client that finds nobody to connect to, or
// no coordinator for as long as it tries again, joins its group anew.
func TestSlowKafkaFaults(t *testing.T) {
	if !slow() {
		t.Skip("it takes long: set BILLET_SLOW")
	}
	l := startWireLoad(startWireRig(t))
	l.mu.Lock()
	l.faults = true
	l.mu.Unlock()
	for range 12 {
		for range 4 {
			l.fault(someNodes(2))
			pauseFor(t.Context(), time.Duration(rand.Int64N(int64(time.Second))))
		}
		for id := int32(1); id <= wireNodes; id++ {
			l.opened(id)
		}
		l.settle(l.names...)
		l.whole(wireTopic, wireNodes)
		l.whole(wireOffsets, wireNodes)
	}
	l.end()
}

// fault does something to one or two nodes, which are back when it returns, though they
// may not be open.
func (l *wireLoad) fault(ids []int32) {
	l.t.Helper()
	switch rand.IntN(5) {
	case 0, 1:
		l.kill(ids[0])
		l.start(ids[0])
	case 2:
		l.kill(ids[0])
		l.kill(ids[1])
		pauseFor(l.t.Context(), time.Duration(rand.Int64N(int64(time.Second))))
		l.start(ids[1])
		l.start(ids[0])
	case 3:
		l.pause(ids[0], time.Duration(rand.Int64N(int64(wireSession/4))))
	case 4:
		l.opened(ids[0])
		l.shut(ids[0])
		l.start(ids[0])
	}
}

// TestSlowKafkaTopicMadeAnewCrash makes the topic anew while who coordinates is killed.
func TestSlowKafkaTopicMadeAnewCrash(t *testing.T) {
	if !slow() {
		t.Skip("it takes long: set BILLET_SLOW")
	}
	l := startWireLoad(startWireRig(t))
	l.unwatch()
	l.mu.Lock()
	l.silent = true // a rebalance ends with its coordinator, as in Kafka: members of it are told that their generation is old
	l.mu.Unlock()
	for round := range 6 {
		id := l.coordinator(l.names[round%len(l.names)])
		var pausing sync.WaitGroup
		if round%2 == 0 {
			l.kill(id)
			l.start(id)
		} else {
			pausing.Go(func() { l.pause(id, wireSession/4) })
		}
		l.remake()
		pausing.Wait()
		l.opened(id)
		l.settle(l.names...)
		l.quiet()
	}
	l.check()
}

// remake deletes the topic and makes it again while clients work, and waits until all
// have noticed.
func (l *wireLoad) remake() {
	l.t.Helper()
	l.note("--- the topic is made anew")
	l.mu.Lock()
	l.mixed = true
	clear(l.acked) // what was in the old topic is gone
	l.fresh.Store(false)
	l.made.Add(1)
	l.mu.Unlock()
	l.await("the old topic is gone", func(ctx context.Context) error {
		answer, err := l.admin.DeleteTopic(ctx, wireTopic)
		if err := errors.Join(err, answer.Err); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			return err
		}
		return nil
	})
	l.create(wireTopic, wirePartitions, wireNodes)
	l.fresh.Store(true)
	// A producer that forgets a topic begins to count anew, which must not happen twice
	// in the same topic: it has to know that it is another one by then.
	l.pauseLoad()
	for _, c := range l.clients {
		if c.produces {
			c.PurgeTopicsFromProducing(wireTopic)
			c.since.Store(l.made.Load())
		}
	}
	l.goOn()
	l.await("all know the new topic", func(context.Context) error {
		for _, c := range l.clients {
			if made := l.made.Load(); c.since.Load() < made || c.produces && c.wrote.Load() < made {
				return fmt.Errorf("%s does not", c.name)
			}
		}
		return nil
	})
}

// TestKafkaTopicMadeAnew deletes a topic under clients and makes another one with its
// name: they go on with that, from its start.
func TestKafkaTopicMadeAnew(t *testing.T) {
	if invariants.Enabled {
		t.Skip("franz-go 1.22.3 races with itself where topics are purged, as the race detector tells")
	}
	l := startWireLoad(startWireRig(t))
	l.unwatch()
	for range 2 {
		l.remake()
		pauseFor(t.Context(), time.Second)
		l.settle(l.names...)
		l.quiet()
	}
	l.check()
}

// committed waits until a group has committed all of the topic, and finds nothing else.
func (l *wireLoad) committed(name string) {
	l.t.Helper()
	l.await("group "+name+" has committed all", func(ctx context.Context) error {
		commits, err := l.admin.FetchOffsets(ctx, name)
		ends, endsErr := l.admin.ListEndOffsets(ctx, wireTopic)
		if err := errors.Join(err, endsErr, ends.Error()); err != nil {
			return err
		}
		var lacks error
		ends.Each(func(end kadm.ListedOffset) {
			at, _ := commits.Lookup(wireTopic, end.Partition)
			switch {
			case end.Offset < at.At:
				l.t.Fatalf("group %s has committed %d of partition %d, which ends at %d", name, at.At, end.Partition, end.Offset)
			case end.Offset > at.At:
				lacks = fmt.Errorf("it has committed %d of partition %d, which ends at %d", at.At, end.Partition, end.Offset)
			}
		})
		return lacks
	})
}

// TestKafkaPartitionsAdded gives a topic that groups read more partitions.
func TestKafkaPartitionsAdded(t *testing.T) {
	l := startWireLoad(startWireRig(t))
	for _, n := range []int{wirePartitions + 1, wirePartitions + 4} {
		ctx, cancel := l.context()
		answer, err := l.admin.UpdatePartitions(ctx, n, wireTopic)
		cancel()
		if err := errors.Join(err, answer.Error()); err != nil {
			t.Fatal(err)
		}
		l.partitions.Store(int32(n))
		pauseFor(t.Context(), time.Second)
		l.settle(l.names...)
	}
	l.quiet()
	l.end()
}

// quiet waits until all groups have committed all that there is while nobody writes.
func (l *wireLoad) quiet() {
	l.t.Helper()
	l.pauseLoad()
	for _, name := range l.names {
		l.committed(name)
	}
	l.goOn()
}

// TestKafkaGrows begins with one node that has groups, lets two more join, and kills the
// first one: the groups go on where they were.
func TestKafkaGrows(t *testing.T) {
	r := newWireRig(t)
	r.local, r.alone = true, true
	r.start(1)
	r.opened(1)
	r.connect()
	r.create(wireTopic, wirePartitions, 1)
	l := startWireLoad(r)
	pauseFor(t.Context(), 500*time.Millisecond)
	l.shut(1)
	r.alone, r.grows = false, true
	for id := int32(1); id <= wireNodes; id++ {
		l.startAgain(id)
	}
	l.settle(l.names...)
	l.whole(wireOffsets, wireNodes)
	l.replicate(wireTopic)
	l.whole(wireTopic, wireNodes)
	l.settle(l.names...)
	l.kill(1)
	pauseFor(t.Context(), time.Second)
	l.settle(l.names...)
	l.startAgain(1)
	l.end()
}

// replicate gives all partitions of a topic replicas on all nodes.
func (r *wireRig) replicate(topic string) {
	r.t.Helper()
	var q kadm.AlterPartitionAssignmentsReq
	for n := range r.partitions.Load() {
		q.Assign(topic, n, []int32{n%wireNodes + 1, (n+1)%wireNodes + 1, (n+2)%wireNodes + 1})
	}
	r.await("replicas are ordered", func(ctx context.Context) error {
		answer, err := r.admin.AlterPartitionAssignments(ctx, q)
		return errors.Join(err, answer.Error())
	})
}
