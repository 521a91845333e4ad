package billet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/history"
	"github.com/billetlog/billet/replication"
)

// rigMember is a node of a rig, in this process or a child of it.
type rigMember interface {
	look(ctx context.Context) (map[int32]rigReplica, error)
	dump(ctx context.Context) (map[int32]history.Replica, error)
	rest(ctx context.Context) error
	resume(ctx context.Context) error
}

// clusterRig is a cluster that has bad luck, and what it told everybody.
type clusterRig struct {
	t       testing.TB
	history *history.History
	client  *clusterMember // a node without replicas
	probe   *Producer      // of the client
	stop    context.CancelFunc
	tasks   sync.WaitGroup
	began   time.Time
	dumps   int
	longest time.Duration // that it took to be whole

	mu      sync.Mutex
	members map[int32]rigMember           // those that are open
	read    []map[history.Partition]int64 // by reader: what comes next
	notes   []string
}

// settleMax bounds how long a cluster takes to be whole when nothing is wrong any more, on a machine that does much else.
const settleMax = 90 * time.Second

func newClusterRig(t testing.TB) *clusterRig {
	r := &clusterRig{t: t, history: history.New(), began: time.Now(), members: map[int32]rigMember{}}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, n := range r.notes {
			t.Log(n)
		}
	})
	return r
}

// slow tells whether the long version of a test is to run.
func slow() bool { return os.Getenv("BILLET_SLOW") != "" }

func (r *clusterRig) note(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.notes = append(r.notes, fmt.Sprintf("%8v ", time.Since(r.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

func (r *clusterRig) partition(n int32) history.Partition {
	return history.Partition{Topic: rigTopic, Number: n}
}

func (r *clusterRig) send(writer string) history.Value { return r.history.Send(writer) }

// answered takes what became of a record. All outages are shorter than producers are patient, so that nothing but Close may make a record fail.
func (r *clusterRig) answered(v history.Value, at Offset, err error) {
	if err == nil {
		r.history.Acknowledge(r.partition(at.Partition), at.Offset, v)
		return
	}
	if isRefusal(err) {
		r.history.Refuse(v, err)
	}
	if !errors.Is(err, ErrClosed) && !errors.Is(err, context.Canceled) {
		r.history.Violate("record %v failed: %w", v, err)
	}
}

func (r *clusterRig) lead(partition, epoch, node int32) {
	r.history.Lead(r.partition(partition), epoch, node)
}

// enter makes a node a part of what is checked.
func (r *clusterRig) enter(id int32, m rigMember) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.members[id] = m
}

func (r *clusterRig) leave(id int32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.members, id)
}

func (r *clusterRig) all() map[int32]rigMember {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.members)
}

// setClient makes a node that knows the topic the rig's client: with a load, a probe and readers.
func (r *clusterRig) setClient(log *Log, id int32) {
	awaitTopic(r.t, log, rigTopic)
	r.client = newClusterMember(log, fmt.Sprintf("client%d", id), r)
	r.enter(id, r.client)
	var err error
	if r.probe, err = log.NewProducer(ProducerConfig{Partitioner: ManualPartitioner}); err != nil {
		r.t.Fatal(err)
	}
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	r.read = []map[history.Partition]int64{{}, {}}
	for i := range r.read {
		c, err := log.NewConsumer(ConsumerConfig{Topics: []string{rigTopic}})
		if err != nil {
			r.t.Fatal(err)
		}
		r.tasks.Go(func() { r.consume(ctx, c, i) })
	}
}

func (r *clusterRig) consume(ctx context.Context, c *Consumer, i int) {
	reader := r.history.Reader(fmt.Sprintf("reader %d", i))
	for {
		records, err := c.Poll(ctx)
		for k := range records {
			p := r.partition(records[k].Partition)
			reader.Read(p, records[k].Offset, harnessValue(records[k].Value))
			r.mu.Lock()
			r.read[i][p] = records[k].Offset + 1
			r.mu.Unlock()
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.history.Violate("reader %d: %w", i, err)
			return
		}
	}
}

// end closes the client.
func (r *clusterRig) end() {
	if r.client == nil {
		return
	}
	r.stop()
	r.tasks.Wait()
	if err := r.client.close(); err != nil {
		r.t.Errorf("close the client: %v", err)
	}
}

// leader returns the node that leads a partition as the client knows, or 0.
func (r *clusterRig) leader(partition int32) int32 {
	return max(r.client.log.describePartition(rigTopic, partition).Leader, 0)
}

// works writes a record to each partition from the client.
func (r *clusterRig) works(ctx context.Context) {
	r.t.Helper()
	for n := range int32(rigPartitions) {
		v := r.history.Send("probe")
		at, err := r.probe.ProduceSync(ctx, Record{Topic: rigTopic, Partition: n, Value: ledgerValue(v.Writer, int(v.N), 30)})
		if err != nil {
			r.t.Fatalf("partition %d takes no records: %v", n, err)
		}
		r.history.Acknowledge(r.partition(n), at.Offset, v)
	}
}

// settle waits until a cluster where nothing is wrong any more is whole, and checks everything. Replicas are compared byte by byte if deep.
func (r *clusterRig) settle(deep bool) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), settleMax)
	defer cancel()
	began := time.Now()
	r.works(ctx)
	r.note("takes records after %v", time.Since(began).Round(time.Millisecond))
	for id, m := range r.all() {
		r.fatal(fmt.Sprintf("node %d", id), m.rest(ctx))
	}
	r.note("all is answered")
	r.await(ctx, func() error { return r.whole(ctx) })
	r.await(ctx, r.allRead)
	took := time.Since(began)
	r.longest = max(r.longest, took)
	r.note("whole after %v", took.Round(time.Millisecond))
	if deep {
		r.compare(ctx)
	}
	r.fatal("the history", r.history.Err())
	for id, m := range r.all() {
		r.fatal(fmt.Sprintf("node %d", id), m.resume(ctx))
	}
}

func (r *clusterRig) fatal(what string, err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatalf("%s: %v", what, err)
	}
}

// await waits until a condition, which says what it lacks, holds.
func (r *clusterRig) await(ctx context.Context, lacks func() error) {
	r.t.Helper()
	for {
		err := lacks()
		if err == nil {
			return
		}
		if !pauseFor(ctx, lookGap) {
			r.t.Fatalf("not in time: %v", err)
		}
	}
}

// assignments are those of the topic, as the client knows them.
func (r *clusterRig) assignments() []replication.PartitionAssignment {
	for _, t := range r.client.log.harnessNode().Controller.Topics() {
		if t.Name == rigTopic {
			return t.Partitions
		}
	}
	return nil
}

// whole says what is not as it should be: each replica runs where the records say, is in sync and has all there is.
func (r *clusterRig) whole(ctx context.Context) error {
	looks := map[int32]map[int32]rigReplica{}
	for id, m := range r.all() {
		look, err := m.look(ctx)
		if err != nil {
			return fmt.Errorf("node %d: %w", id, err)
		}
		looks[id] = look
	}
	all := r.assignments()
	if len(all) != rigPartitions {
		return fmt.Errorf("the client knows of %d partitions", len(all))
	}
	for i := range all {
		if err := wholePartition(&all[i], looks); err != nil {
			return fmt.Errorf("partition %d: %w", i, err)
		}
	}
	return nil
}

func wholePartition(a *replication.PartitionAssignment, looks map[int32]map[int32]rigReplica) error {
	leaders, inSync, high := 0, 0, int64(-1)
	if len(a.Target) > 0 {
		return fmt.Errorf("it is on its way: %+v", *a)
	}
	for _, assigned := range a.Replicas {
		have, ok := looks[assigned.Node][a.Partition]
		switch {
		case assigned.Role != replication.RoleVoter:
			return fmt.Errorf("it is on its way: %+v", *a)
		case !ok || have.ID != assigned.Replica:
			return fmt.Errorf("node %d has replica %x (%v), recorded is %x", assigned.Node, have.ID, ok, assigned.Replica)
		case have.State == replication.StateLeader.String():
			leaders++
			inSync = have.InSync
		case have.State != replication.StateFollower.String():
			return fmt.Errorf("on node %d it is %s", assigned.Node, have.State)
		}
		if high < 0 {
			high = have.High
		}
		if have.High != high || have.End != high {
			return fmt.Errorf("node %d ends at %d and has the high watermark at %d, another one has it at %d", assigned.Node, have.End, have.High, high)
		}
	}
	if leaders != 1 || inSync != len(a.Replicas) {
		return fmt.Errorf("%d leaders, %d of %d replicas in sync", leaders, inSync, len(a.Replicas))
	}
	return nil
}

// allRead says which reader has not read all that is known.
func (r *clusterRig) allRead() error {
	for n := range int32(rigPartitions) {
		p := r.partition(n)
		known := r.history.Known(p)
		r.mu.Lock()
		at := make([]int64, len(r.read))
		for i := range r.read {
			at[i] = r.read[i][p]
		}
		r.mu.Unlock()
		if slices.Min(at) < known {
			return fmt.Errorf("readers of partition %d are at %v of %d", n, at, known)
		}
	}
	return nil
}

// compare reads all replicas and holds them against the history and each other.
func (r *clusterRig) compare(ctx context.Context) {
	r.t.Helper()
	dumps := map[int32]map[int32]history.Replica{}
	for id, m := range r.all() {
		d, err := m.dump(ctx)
		r.fatal(fmt.Sprintf("node %d", id), err)
		dumps[id] = d
	}
	for _, a := range r.assignments() {
		var replicas []history.Replica
		for _, assigned := range a.Replicas {
			c, ok := dumps[assigned.Node][a.Partition]
			if !ok {
				r.history.Violate("node %d has no replica of partition %d", assigned.Node, a.Partition)
			}
			c.Name = fmt.Sprintf("node %d", assigned.Node)
			replicas = append(replicas, c)
		}
		r.history.CheckReplicas(r.partition(a.Partition), replicas)
	}
	r.dumps++
}

// sum tells what there was.
func (r *clusterRig) sum() {
	r.t.Helper()
	r.t.Logf("%d acknowledged, %d times compared, whole after %v at most, %v in all", r.history.Acknowledged(), r.dumps,
		r.longest.Round(time.Millisecond), time.Since(r.began).Round(time.Millisecond))
}
