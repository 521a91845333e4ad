package billet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/billetlog/billet/internal/broker"
	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/replication"
	"github.com/billetlog/billet/transport/kafka"
)

// Log is one open node: a durable log on one directory. It is safe for
// concurrent use. Make one with Open and Close it.
type Log struct {
	config  Config
	catalog catalog
	cluster clusterControl
	groups  groups
	events  *eventQueue
	node    node
	closed  atomic.Bool
	done    chan struct{} // closed when Close is through
	started time.Time

	sync syncProducer

	mu struct {
		sync.Mutex
		producers map[*Producer]struct{}
		consumers map[*Consumer]struct{}
	}
}

// node is what runs below the Log.
type node interface {
	metrics(*Metrics)
	Close(ctx context.Context) error
}

// seams are what tests put in the place of the machine.
type seams struct {
	fs   vfs.FS
	now  func() time.Time // nil: the machine's clock
	pace pace
}

// pace is how fast nodes notice things about one another. What is zero has the
// default, for real machines and networks.
type pace struct {
	tick           time.Duration // Raft's clock
	ping, deadPeer time.Duration // of the transport
	gossip         time.Duration
}

// lockName is the file in Dir that says who has it.
const lockName = "LOCK"

// Open opens the log in config.Dir, making it if it is not there. When it returns,
// all topics are there and can be read; produce may have to wait a moment more
// for its partition, and does so by itself. A partition whose files are damaged
// is quarantined and does not keep the Log from opening.
//
// Errors: ErrInvalidConfig; ErrLocked, naming the holder; ErrForeignDir;
// ErrQuarantined, ErrCorrupt when the metadata itself is damaged; those of the
// file system. After an error nothing is left running or locked.
func Open(config Config) (*Log, error) { return open(config, seams{fs: vfs.OS}) }

func open(config Config, s seams) (*Log, error) {
	config.EnsureDefaults()
	if err := config.Validate(); err != nil {
		return nil, err
	}
	events := newEventQueue(config.Logger, config.OnEvent)
	n, err := openNode(config, s, events)
	if err != nil {
		events.close()
		return nil, fmt.Errorf("billet: open %s: %w", config.Dir, wrapSeam(err))
	}
	l := newLog(config, n.catalog, events, n)
	l.cluster, l.groups = n, brokerGroups{n.broker}
	return l, nil
}

// newLog makes a Log of parts that run.
func newLog(config Config, cat catalog, events *eventQueue, n node) *Log {
	l := &Log{config: config, catalog: cat, events: events, node: n,
		done: make(chan struct{}), started: time.Now()}
	l.mu.producers = map[*Producer]struct{}{}
	l.mu.consumers = map[*Consumer]struct{}{}
	return l
}

// machineNode is a directory's lock, and the node on it.
type machineNode struct {
	lock interface{ Close() error }
	*replication.Node
	catalog *controllerCatalog
	broker  *broker.Broker
	kafka   *kafka.Server // nil without a listener
}

// openNode starts everything below, in order; on an error it stops what it
// started.
func openNode(config Config, s seams, events *eventQueue) (n *machineNode, err error) {
	n = &machineNode{}
	defer func() {
		if err != nil {
			ctx, cancel := context.WithTimeout(context.Background(), config.CloseTimeout)
			defer cancel()
			err = errors.Join(err, n.Close(ctx))
		}
	}()
	if err = makeDir(s.fs, config.Dir); err != nil {
		return n, err
	}
	if n.lock, err = s.fs.Lock(filepath.Join(config.Dir, lockName), lockHolder()); err != nil {
		return n, err
	}
	ctx, cancel := context.Background(), func() {}
	if config.OpenTimeout > 0 {
		ctx, cancel = context.WithTimeout(ctx, config.OpenTimeout)
	}
	defer cancel()
	n.Node, err = replication.OpenNode(ctx, replication.NodeConfig{
		ID: config.NodeID, Network: config.Cluster.network(s.pace),
		Host: replication.HostConfig{
			FS: s.fs, Now: s.now, TickInterval: s.pace.tick, Dir: config.Dir, Logger: config.Logger,
			OnEvent:      func(e replication.Event) { events.post(translateEvent(e)) },
			JournalBytes: config.JournalBytes, DiskReserve: max(config.DiskReserve, 0),
			MaxInFlightBytes:       config.MaxInFlightBytes,
			RetentionCheckInterval: config.RetentionCheckInterval,
			ScrubBytesPerSecond:    config.ScrubBytesPerSecond,
			ReplicaLagTimeMax:      config.Cluster.ReplicaLagTimeMax,
			CatchUpBytesPerSecond:  config.Cluster.CatchupBytesPerSecond,
		},
	})
	if err != nil {
		return n, err
	}
	n.catalog = newControllerCatalog(n.Controller)
	n.broker, err = broker.Open(broker.Options{Node: n.Node, Router: n.catalog.router, Self: config.NodeID,
		Dir: config.Dir, Rack: config.Cluster.Rack, TopicDefaults: config.TopicDefaults,
		Logger: config.Logger, Groups: config.Groups.options(), OffsetsPartitions: config.Groups.OffsetsPartitions})
	if err != nil {
		return n, err
	}
	return n, n.openKafka(ctx, &config)
}

// makeDir makes dir with its missing parents, durably.
func makeDir(fs vfs.FS, dir string) error {
	var parents []string // of what is made
	for d := filepath.Clean(dir); ; d = filepath.Dir(d) {
		if _, err := fs.Stat(d); err == nil || d == filepath.Dir(d) {
			break
		}
		parents = append(parents, filepath.Dir(d))
	}
	if err := fs.MkdirAll(dir); err != nil {
		return err
	}
	for _, parent := range parents {
		if err := fs.SyncDir(parent); err != nil {
			return err
		}
	}
	return nil
}

// lockHolder is what another Open of the directory is told.
func lockHolder() string {
	name, err := os.Hostname()
	if err != nil {
		name = "unknown host"
	}
	return fmt.Sprintf("process %d on %s since %s", os.Getpid(), name, time.Now().Format(time.RFC3339))
}

// Close stops what openNode started, in the opposite order.
func (n *machineNode) Close(ctx context.Context) error {
	var errs []error
	if n.catalog != nil {
		n.Host.HandOver(ctx) // while what other nodes forward is served still
	}
	if n.kafka != nil {
		errs = append(errs, n.kafka.Close())
	}
	if n.broker != nil {
		n.broker.Close()
	}
	if n.catalog != nil {
		n.catalog.close()
	}
	if n.Node != nil {
		errs = append(errs, n.Node.Close(ctx))
	}
	if n.lock != nil {
		errs = append(errs, n.lock.Close())
	}
	return errors.Join(errs...)
}

// check refuses calls on a closed Log or with an ended context.
func (l *Log) check(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if l.closed.Load() {
		return fmt.Errorf("billet: log %s: %w: %s", l.config.Dir, ErrClosed, adviceOpenAgain)
	}
	return nil
}

// Close closes open producers and consumers, the latter side by side, brings
// everything to the disk and releases the directory. Records that a Producer still holds fail with
// ErrClosed: close producers first. A second Close waits for the first and
// returns nil.
func (l *Log) Close() error {
	if l.closed.Swap(true) {
		<-l.done
		return nil
	}
	defer close(l.done)
	l.mu.Lock()
	producers, consumers := l.mu.producers, l.mu.consumers
	l.mu.producers, l.mu.consumers = nil, nil
	l.mu.Unlock()
	var errs []error
	for p := range producers {
		errs = append(errs, p.shut())
	}
	closeConsumers(consumers)
	ctx, cancel := context.WithTimeout(context.Background(), l.config.CloseTimeout)
	defer cancel()
	if err := l.node.Close(ctx); err != nil {
		errs = append(errs, fmt.Errorf("billet: close %s: %w", l.config.Dir, wrapSeam(err)))
	}
	l.events.close()
	return errors.Join(errs...)
}

// closeConsumers closes consumers side by side: those in groups whose coordinators do
// not answer wait together for what one of them waits.
func closeConsumers(consumers map[*Consumer]struct{}) {
	var all sync.WaitGroup
	for c := range consumers {
		all.Go(func() { _ = c.Close() }) // it has no error
	}
	all.Wait()
}

// NewProducer returns a Producer. Errors: ErrInvalidConfig, ErrClosed.
func (l *Log) NewProducer(config ProducerConfig) (*Producer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.producers == nil {
		return nil, fmt.Errorf("billet: new producer: %w: %s", ErrClosed, adviceOpenAgain)
	}
	p, err := newProducer(l.catalog, config, l.forgetProducer)
	if err != nil {
		return nil, err
	}
	l.mu.producers[p] = struct{}{}
	return p, nil
}

func (l *Log) forgetProducer(p *Producer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.producers, p)
}

// NewConsumer returns a Consumer. Errors: ErrInvalidConfig, ErrUnknownTopic,
// ErrClosed.
func (l *Log) NewConsumer(config ConsumerConfig) (*Consumer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.consumers == nil {
		return nil, fmt.Errorf("billet: new consumer: %w: %s", ErrClosed, adviceOpenAgain)
	}
	c, err := newConsumer(l.catalog, l.groups, config, l.forgetConsumer)
	if err != nil {
		return nil, err
	}
	l.mu.consumers[c] = struct{}{}
	return c, nil
}

func (l *Log) forgetConsumer(c *Consumer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.consumers, c)
}

// eventKinds translates the kinds of events from below.
var eventKinds = map[replication.EventKind]EventKind{
	replication.EventLeader:          EventWritable,
	replication.EventLeaderLost:      EventLeaderLost,
	replication.EventISRShrink:       EventISRShrink,
	replication.EventISRGrow:         EventISRGrow,
	replication.EventUnderReplicated: EventUnderReplicated,
	replication.EventReplicated:      EventFullyReplicated,
	replication.EventTailCut:         EventTailCut,
	replication.EventUnsyncedLost:    EventUnsyncedLost,
	replication.EventQuarantined:     EventQuarantined,
	replication.EventDamaged:         EventDamaged,
	replication.EventRecovered:       EventRecovered,
	replication.EventReplicaFailed:   EventPartitionFailed,
	replication.EventReplicaRestart:  EventPartitionRestarted,
	replication.EventDiskFull:        EventDiskFull,
	replication.EventDiskFree:        EventDiskFree,
	replication.EventJournalOff:      EventJournalOff,
	replication.EventRaftParked:      EventInternal,
	replication.EventRetention:       EventRetention,
	replication.EventOrphan:          EventOrphan,
}

func translateEvent(e replication.Event) Event {
	kind, ok := eventKinds[e.Kind]
	if !ok {
		kind = EventKind(e.Kind)
	}
	return Event{Kind: kind, Time: e.Time, Topic: e.Topic, Partition: e.Partition,
		Offset: e.Offset, Bytes: e.Bytes, Duration: e.Duration, Err: wrapSeam(e.Err), Detail: e.Detail}
}
