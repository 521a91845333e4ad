package billet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/billetlog/billet/internal/history"
	"github.com/billetlog/billet/replication"
)

// The topic of the tests with bad luck on a cluster.
const (
	rigTopic      = "t"
	rigPartitions = 4
)

// loadNotes takes down what a load sent and was told.
type loadNotes interface {
	send(writer string) history.Value
	answered(v history.Value, at Offset, err error)
	lead(partition, epoch, node int32)
}

// clusterMember is an open node with a load on it, that can be looked into.
type clusterMember struct {
	log    *Log
	writer string
	notes  loadNotes

	ctx     context.Context
	stop    context.CancelFunc
	tasks   sync.WaitGroup
	resting atomic.Bool
	open    atomic.Int64 // records without an answer
}

const (
	loadOpenMax = 300                   // records without an answer
	loadGap     = 15 * time.Millisecond // between its lots
	lookGap     = 20 * time.Millisecond // between two looks at something that changes
)

// newClusterMember starts a load on a node: a producer for all partitions, and somebody who notes which of them the node leads.
func newClusterMember(log *Log, writer string, notes loadNotes) *clusterMember {
	m := &clusterMember{log: log, writer: writer, notes: notes}
	m.ctx, m.stop = context.WithCancel(context.Background())
	m.tasks.Go(m.watchLeaders)
	m.tasks.Go(m.produce)
	return m
}

func (m *clusterMember) pause(d time.Duration) bool { return pauseFor(m.ctx, d) }

// pauseFor waits for a time and tells whether it is over before ctx is.
func pauseFor(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (m *clusterMember) produce() {
	for {
		if _, ok := m.log.catalog.Topic(rigTopic); ok {
			break
		}
		if !m.pause(lookGap) {
			return
		}
	}
	p, err := m.log.NewProducer(ProducerConfig{Partitioner: ManualPartitioner})
	if err != nil {
		return
	}
	for m.pause(loadGap) {
		for range 1 + rand.IntN(6) {
			// It counts before it looks whether it may: rest looks in the opposite order.
			if m.open.Add(1) > loadOpenMax || m.resting.Load() {
				m.open.Add(-1)
				break
			}
			m.produceOne(p)
		}
	}
}

// produceOne sends a record that is counted as open.
func (m *clusterMember) produceOne(p *Producer) {
	size := 20 + rand.IntN(400)
	if rand.IntN(150) == 0 {
		size = 70 << 10 // past the journal
	}
	v := m.notes.send(m.writer)
	r := Record{Topic: rigTopic, Partition: int32(rand.IntN(rigPartitions)), Value: ledgerValue(v.Writer, int(v.N), size)}
	err := p.Produce(m.ctx, r, func(at Offset, err error) {
		m.notes.answered(v, at, err)
		m.open.Add(-1)
	})
	if err != nil {
		m.notes.answered(v, Offset{}, err)
		m.open.Add(-1)
	}
}

// rest stops the load and waits until every record is answered.
func (m *clusterMember) rest(ctx context.Context) error {
	m.resting.Store(true)
	for m.open.Load() > 0 {
		if !pauseFor(ctx, lookGap) {
			return fmt.Errorf("%d records of %s have no answer", m.open.Load(), m.writer)
		}
	}
	return nil
}

func (m *clusterMember) resume(context.Context) error {
	m.resting.Store(false)
	return nil
}

// close closes the log under its load. That records are given up is no error: those who were to take them may be gone.
func (m *clusterMember) close() error {
	m.resting.Store(true)
	err := m.log.Close()
	m.stop()
	m.tasks.Wait()
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err
	}
	return errors.Join(slices.DeleteFunc(joined.Unwrap(), func(err error) bool { return errors.Is(err, ErrClosed) })...)
}

func (m *clusterMember) watchLeaders() {
	for m.pause(lookGap) {
		for n := range int32(rigPartitions) {
			if p, err := m.log.harnessNode().Controller.Partition(rigTopic, n); err == nil && p.Epoch() != 0 {
				m.notes.lead(n, p.Epoch(), m.log.config.NodeID)
			}
		}
	}
}

// rigReplica is what a node says of its replica of a partition.
type rigReplica struct {
	ID        uint64
	State     string
	High, End int64
	InSync    int // replicas in sync, where it leads
}

// look describes the replicas on the node.
func (m *clusterMember) look(context.Context) (map[int32]rigReplica, error) {
	out := map[int32]rigReplica{}
	for n := range int32(rigPartitions) {
		p, err := m.log.harnessNode().Controller.Partition(rigTopic, n)
		if err != nil {
			continue
		}
		state, cause := p.State()
		r := rigReplica{ID: p.Spec().Replica, State: state.String(), High: p.HighWatermark(), End: p.EndOffset()}
		if cause != nil {
			r.State += ": " + cause.Error()
		}
		if state == replication.StateLeader {
			for _, replica := range m.log.describePartition(rigTopic, n).Replicas {
				if replica.InSync {
					r.InSync++
				}
			}
		}
		out[n] = r
	}
	return out, nil
}

// dump reads all replicas on the node.
func (m *clusterMember) dump(context.Context) (map[int32]history.Replica, error) {
	out := map[int32]history.Replica{}
	for n := range int32(rigPartitions) {
		p, err := m.log.harnessNode().Controller.Partition(rigTopic, n)
		if err != nil {
			continue
		}
		r, err := harnessContent(p)
		if err != nil {
			return nil, fmt.Errorf("partition %d: %w", n, err)
		}
		out[n] = r
	}
	return out, nil
}

// isRefusal tells whether an error says for certain that a record was not written.
func isRefusal(err error) bool { return err != nil && !errors.Is(err, ErrAmbiguous) }
