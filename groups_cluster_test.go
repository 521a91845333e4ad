package billet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/transport"
)

// groupsCluster is three nodes that clients reach over TCP.
type groupsCluster struct {
	t     *testing.T
	net   *transport.MemoryNetwork
	disks map[int32]*vfs.Mem
	addrs map[int32]string // of the listeners
	logs  map[int32]*Log
}

func newGroupsCluster(t *testing.T) *groupsCluster {
	c := &groupsCluster{t: t, net: transport.NewMemoryNetwork(1), disks: map[int32]*vfs.Mem{}, logs: map[int32]*Log{}, addrs: map[int32]string{}}
	for i, addr := range freeAddresses(t, 3) {
		c.disks[int32(i+1)], c.addrs[int32(i+1)] = harnessDisk(), addr
	}
	t.Cleanup(func() {
		c.net.Heal()
		var running sync.WaitGroup
		for _, log := range c.logs {
			running.Go(func() { closeLog(t, log) })
		}
		running.Wait()
		_ = c.net.Close()
	})
	var running sync.WaitGroup
	var mu sync.Mutex
	for id := range c.disks {
		running.Go(func() {
			log := c.open(id)
			mu.Lock()
			defer mu.Unlock()
			c.logs[id] = log
		})
	}
	running.Wait()
	if t.Failed() {
		t.FailNow()
	}
	ctx := within(t)
	if err := c.logs[1].CreateTopic(ctx, Topic{Name: "t", Partitions: 6, Replicas: 3}); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *groupsCluster) open(id int32) *Log {
	config := Config{Dir: "/data/log", NodeID: id, JournalBytes: 2 << 20, DiskReserve: -1, OpenTimeout: settleMax,
		Logger: clusterLogger(fmt.Sprint(id)), Kafka: Kafka{Addr: c.addrs[id]},
		Groups: Groups{OffsetsPartitions: 4, InitialRebalanceDelay: 50 * time.Millisecond, HeartbeatInterval: 200 * time.Millisecond}}
	config.Cluster = Cluster{Listen: harnessAddress(id), Transport: c.net.Host(harnessHost(id)), ReplicaLagTimeMax: time.Second}
	for i := int32(1); i <= 3; i++ {
		config.Cluster.Bootstrap = append(config.Cluster.Bootstrap, i)
		config.Cluster.Join = append(config.Cluster.Join, harnessAddress(i))
	}
	log, err := open(config, seams{fs: c.disks[id], pace: harnessPace})
	if err != nil {
		c.t.Errorf("open node %d: %v", id, err)
	}
	return log
}

func (c *groupsCluster) seeds() kgo.Opt {
	var all []string
	for _, addr := range c.addrs {
		all = append(all, addr)
	}
	return kgo.SeedBrokers(all...)
}

// coordinator is the node that coordinates a group.
func (c *groupsCluster) coordinator(ctx context.Context, client *kgo.Client, name string) int32 {
	c.t.Helper()
	var found kadm.FindCoordinatorResponses
	eventually(c.t, "the coordinator is known", func(context.Context) bool {
		found = kadm.NewClient(client).FindGroupCoordinators(ctx, name)
		return found.Error() == nil
	})
	return found[name].NodeID
}

// committer commits rising offsets until it is stopped, as an administrator, for a group
// that has the coordinator of another one, and looks whether one that was acknowledged is
// taken back.
func (c *groupsCluster) committer(ctx context.Context, client *kgo.Client, beside string) (acknowledged func() int64, stop func()) {
	name := beside + "-offsets"
	for n := 0; partitionOfGroup(name, 4) != partitionOfGroup(beside, 4); n++ {
		name = fmt.Sprint(beside, "-offsets-", n)
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	var committed atomic.Int64
	go func() {
		defer close(ended)
		admin := kadm.NewClient(client)
		for at := int64(1); ctx.Err() == nil; at++ {
			var offsets kadm.Offsets
			offsets.AddOffset("t", 0, at, -1)
			one, cancelOne := context.WithTimeout(ctx, 5*time.Second)
			answer, err := admin.CommitOffsets(one, name, offsets)
			if err == nil && answer.Error() == nil {
				committed.Store(at)
			}
			stored, err := admin.FetchOffsets(one, name)
			cancelOne()
			if o, ok := stored.Lookup("t", 0); err == nil && committed.Load() > 0 && (!ok || o.At < committed.Load()) {
				c.t.Errorf("%s has %d, %v, acknowledged was %d", name, o.At, ok, committed.Load())
			}
		}
	}()
	return committed.Load, func() { cancel(); <-ended }
}

// partitionOfGroup is Kafka's function, for names of ASCII.
func partitionOfGroup(name string, n int32) int32 {
	var hash int32
	for _, c := range name {
		hash = 31*hash + c
	}
	return max(hash, -hash) % n
}

// A stable group notices nothing when its coordinator moves or is cut off: no member
// loses a partition, all go on, and no commit that was acknowledged is lost.
func TestGroupsCoordinatorMoves(t *testing.T) {
	for _, kind := range []struct {
		name string
		opts []kgo.Opt
	}{
		{"classic", []kgo.Opt{kgo.Balancers(kgo.CooperativeStickyBalancer())}},
		{"consumer", []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer())}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			c := newGroupsCluster(t)
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			client, err := kgo.NewClient(c.seeds(), kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			wrote := 0
			s := newSum()
			produce := func(why string) {
				t.Helper()
				for range 30 {
					wrote++
					client.Produce(ctx, &kgo.Record{Value: fmt.Append(nil, wrote)}, func(_ *kgo.Record, err error) {
						if err != nil {
							t.Errorf("%s: produce: %v", why, err)
						}
					})
				}
				if err := client.Flush(ctx); err != nil {
					t.Fatalf("%s: %v", why, err)
				}
				s.await(ctx, t, wrote)
			}
			var moves atomic.Int64 // partitions that members got or lost
			count := func(_ context.Context, _ *kgo.Client, all map[string][]int32) {
				for _, partitions := range all {
					moves.Add(int64(len(partitions)))
				}
			}
			var readers []*reader
			for range 3 {
				readers = append(readers, read(t, c.logs[1], s, append([]kgo.Opt{c.seeds(), kgo.ConsumerGroup("g"),
					kgo.OnPartitionsAssigned(count), kgo.OnPartitionsRevoked(count), kgo.OnPartitionsLost(count)}, kind.opts...)...))
			}
			produce("at first")
			c.settled(ctx, client, kind.name, &moves)
			before := moves.Load()
			acknowledged, stop := c.committer(ctx, client, "g")

			for range 2 {
				id := c.coordinator(ctx, client, "g")
				closeLog(t, c.logs[id])
				produce(fmt.Sprintf("without node %d", id))
				if c.logs[id] = c.open(id); c.logs[id] == nil {
					t.FailNow()
				}
				produce(fmt.Sprintf("with node %d again", id))
			}
			id := c.coordinator(ctx, client, "g")
			c.net.Partition(transport.CutSilent, []string{harnessHost(id)}, hosts(id%3+1, (id+1)%3+1))
			for from := acknowledged(); acknowledged() < from+5; { // as long as it takes others to coordinate, and more
				if ctx.Err() != nil {
					t.Fatalf("no commits while node %d is cut off", id)
				}
				time.Sleep(10 * time.Millisecond)
			}
			produce(fmt.Sprintf("node %d is cut off", id))
			c.net.Heal()
			produce("it is not any more")

			stop()
			if n := moves.Load() - before; n != 0 {
				t.Errorf("members got or lost %d partitions", n)
			}
			for _, r := range readers {
				r.close(t)
			}
			checkLag(ctx, t, client, "g", "t")
		})
	}
}

// settled waits until the group has been as it is for a while.
func (c *groupsCluster) settled(ctx context.Context, client *kgo.Client, kind string, moves *atomic.Int64) {
	c.t.Helper()
	admin := kadm.NewClient(client)
	for last, since := int64(-1), time.Now(); time.Since(since) < 2*time.Second; {
		state, members := "", 0
		if kind == "classic" {
			groups, err := admin.DescribeGroups(ctx, "g")
			if err == nil {
				state, members = groups["g"].State, len(groups["g"].Members)
			}
		} else if groups, err := admin.DescribeConsumerGroups(ctx, "g"); err == nil {
			state, members = groups["g"].State, len(groups["g"].Members)
		}
		if now := moves.Load(); now != last || state != "Stable" || members != 3 {
			last, since = now, time.Now()
		}
		if err := ctx.Err(); err != nil {
			c.t.Fatal(errors.Join(err, fmt.Errorf("the group is %s with %d members", state, members)))
		}
	}
}
