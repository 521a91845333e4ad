package broker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/billetlog/billet/group"
	"github.com/billetlog/billet/internal/kerr"
	"github.com/billetlog/billet/replication"
)

// OffsetsTopic is the internal topic whose partitions hold the groups.
const OffsetsTopic = replication.OffsetsTopic

// defaultOffsetsPartitions is how many partitions OffsetsTopic gets. Kafka has 50, but a
// replica costs more here.
const defaultOffsetsPartitions = 16

// groups runs a coordinator for each partition of OffsetsTopic that has a replica here.
type groups struct {
	controller *replication.Controller
	env        *environment
	partitions int // of the topic when it is made

	life    context.Context
	endLife context.CancelFunc
	running sync.WaitGroup

	matching sync.Mutex // held while coordinators are matched with replicas

	mu struct {
		sync.RWMutex
		coordinators map[int32]*seat
	}
}

// seat is a coordinator that runs, on one replica.
type seat struct {
	*coordinator
	replica *replication.Partition
	stop    func() // and waits
}

func newGroups(o *Options) (*groups, error) {
	o.Groups.NewID = randomID
	if _, err := group.New(o.Groups); err != nil {
		return nil, err
	}
	if o.OffsetsPartitions == 0 {
		o.OffsetsPartitions = defaultOffsetsPartitions
	}
	if o.OffsetsPartitions < 1 || o.OffsetsPartitions > replication.MaxPartitions {
		return nil, fmt.Errorf("broker: Options.OffsetsPartitions is %d: 1 to %d are possible", o.OffsetsPartitions, replication.MaxPartitions)
	}
	g := &groups{controller: o.Node.Controller, partitions: o.OffsetsPartitions}
	g.env = &environment{options: o.Groups, now: time.Now, logger: o.Logger, topics: newTopicsView(o.Node.Controller), tidyMin: tidyMin, tidyInterval: tidyInterval}
	g.mu.coordinators = map[int32]*seat{}
	g.life, g.endLife = context.WithCancel(context.Background())
	g.running.Go(g.watch)
	return g, nil
}

// randomID is a random UUID.
func randomID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// close ends all coordinators and waits for them.
func (g *groups) close() {
	g.endLife()
	g.running.Wait()
}

// watch follows the replicas and the topics.
func (g *groups) watch() {
	for g.life.Err() == nil {
		changed := g.controller.Changed()
		g.match()
		g.mu.RLock()
		for _, s := range g.mu.coordinators {
			s.signal()
		}
		g.mu.RUnlock()
		select {
		case <-changed:
		case <-g.life.Done():
		}
	}
}

// match starts and stops coordinators, so that there is one for each replica.
func (g *groups) match() {
	g.matching.Lock()
	defer g.matching.Unlock()
	replicas := map[int32]*replication.Partition{}
	if t, ok := g.controller.Topic(OffsetsTopic); ok {
		for n := range t.Partitions {
			if p, err := g.controller.Partition(OffsetsTopic, int32(n)); err == nil {
				replicas[int32(n)] = p
			}
		}
	}
	var gone []*seat
	g.mu.Lock()
	for n, s := range g.mu.coordinators {
		if replicas[n] != s.replica {
			gone = append(gone, s)
			delete(g.mu.coordinators, n)
		}
	}
	g.mu.Unlock()
	for _, s := range gone {
		s.stop()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	for n, p := range replicas {
		if g.mu.coordinators[n] == nil && g.life.Err() == nil {
			g.mu.coordinators[n] = g.start(n, p)
		}
	}
}

func (g *groups) start(n int32, p *replication.Partition) *seat {
	ctx, cancel := context.WithCancel(g.life)
	ended := make(chan struct{})
	s := &seat{coordinator: newCoordinator(g.env, n, replica{p, g.controller}), replica: p, stop: func() { cancel(); <-ended }}
	g.running.Go(func() {
		defer close(ended)
		s.serve(ctx)
	})
	return s
}

// at returns the coordinator on this node's replica of a partition, or nil.
func (g *groups) at(n int32) *coordinator {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if s := g.mu.coordinators[n]; s != nil {
		return s.coordinator
	}
	return nil
}

// count is how many partitions the topic has; 0 when there is none.
func (g *groups) count() int32 {
	t, _ := g.controller.Topic(OffsetsTopic)
	return int32(len(t.Partitions))
}

// ensure makes the topic if it is not there, and returns how many partitions it has.
func (g *groups) ensure(ctx context.Context) (int32, error) {
	if n := g.count(); n > 0 {
		return n, nil
	}
	t, err := g.controller.EnsureInternal(ctx, OffsetsTopic, g.partitions)
	if err != nil {
		return 0, fmt.Errorf("making topic %s: %w", OffsetsTopic, err)
	}
	g.match()
	return int32(len(t.Partitions)), nil
}

// partitionOf is which of n partitions a group belongs to: Kafka's function, which takes
// the hash of a Java string.
func partitionOf(name string, n int32) int32 {
	var hash int32
	for _, c := range utf16.Encode([]rune(name)) {
		hash = 31*hash + int32(c)
	}
	if hash == -1<<31 {
		return 0
	}
	return max(hash, -hash) % n
}

// findTimeout bounds how long somebody who looks for a coordinator waits for the topic to
// be made.
const findTimeout = 20 * time.Second

// FindCoordinator tells which node coordinates a group.
func (b *Broker) FindCoordinator(ctx context.Context, name string) (node int32, err error) {
	ctx, cancel := context.WithTimeout(ctx, findTimeout)
	defer cancel()
	n, err := b.groups.ensure(ctx)
	if err != nil {
		return 0, kerr.Errorf(kerr.COORDINATOR_NOT_AVAILABLE, "%v", err)
	}
	at := partitionOf(name, n)
	if node, _ = b.Leader(OffsetsTopic, at); node < 0 {
		return 0, kerr.Errorf(kerr.COORDINATOR_NOT_AVAILABLE, "nobody is known to lead %s-%d", OffsetsTopic, at)
	}
	return node, nil
}
