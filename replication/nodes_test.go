package replication

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
)

// trioOf opens three nodes that form a cluster and share a topic of n partitions.
func (n *memberNet) trioOf(partitions int, fs ...*vfs.Mem) []*member {
	n.t.Helper()
	opened := make(chan *member, 3)
	failed := make(chan error, 3)
	for i := range int32(3) {
		cfg := n.config(i+1, fs[i], bootstrapping)
		go func() {
			m, err := n.tryOpen(cfg)
			if err != nil {
				failed <- err
				return
			}
			opened <- m
		}()
	}
	all := make([]*member, 3)
	for range 3 {
		select {
		case m := <-opened:
			all[m.cfg.ID-1] = m
		case err := <-failed:
			n.t.Fatal(err)
		}
	}
	if partitions > 0 {
		if _, err := all[0].Controller.CreateTopic(testContext(n.t), TopicSpec{Name: "t", Partitions: partitions}); err != nil {
			n.t.Fatal(err)
		}
	}
	return all
}

func bootstrapping(c *NetworkConfig) {
	c.Bootstrap = []int32{1, 2, 3}
	c.Join = []string{memberAddress(1), memberAddress(2), memberAddress(3)}
}

// produce appends a record to a partition through whichever of the nodes leads it.
func produceTo(t testing.TB, all []*member, partition int32, value string) (offset int64) {
	t.Helper()
	ctx, once := testContext(t), onceBatch(t)
	for ctx.Err() == nil {
		for _, m := range all {
			if m == nil {
				continue
			}
			p := m.Controller.replica("t", partition)
			if p == nil || p.Epoch() == 0 {
				continue
			}
			if r := appendBatch(t, p, once(value), AcksAll); r.Err == nil {
				return r.Offset
			}
		}
		breathe(ctx)
	}
	t.Fatalf("nobody took %q for partition %d", value, partition)
	return 0
}

// Until all that form a cluster have registered, nobody decides who votes: those that are missing would be replaced.
func TestFormingChangesNoVoters(t *testing.T) {
	n := newMemberNet(t)
	all := n.trioOf(0, vfs.NewMem(), vfs.NewMem(), vfs.NewMem())
	all[0].until("three voters", metadataVoters3)
	for _, m := range all {
		c := m.Controller
		if c.meta().Epoch() == 0 {
			continue
		}
		c.mu.Lock()
		absent := c.mu.nodes[3]
		delete(c.mu.nodes, 3)
		c.mu.Unlock()
		if !c.forming() {
			t.Error("a cluster with a member that is not known is not forming")
		}
		if c.governRound(testContext(t)) {
			t.Error("the governor works on a cluster that is forming")
		}
		c.mu.Lock()
		c.mu.nodes[3] = absent
		c.mu.Unlock()
		if !metadataVoters3(c) {
			t.Errorf("the members are %+v", c.mu.topics[MetadataTopic].Partitions[0])
		}
	}
	for _, m := range all {
		m.close()
	}
}

// A node whose replica of the metadata was replaced while it was down gets the new one, although its own log tells it nothing: where that is
// committed up to was not noted before it went down.
func TestReplacedMetadataWithoutRecords(t *testing.T) {
	n := newMemberNet(t)
	fs := vfs.NewMem()
	all := n.trioOf(0, vfs.NewMem(), vfs.NewMem(), fs)
	all[2].until("three voters", metadataVoters3)
	q := all[2].Host.registration()
	crashed := fs.CrashClone(vfs.CrashOptions{})
	all[2].close()
	q.Lost, q.Holds = q.Holds, 0
	c := all[0].Controller
	if _, err := ask(testContext(t), c, "register", q, (*Controller).registerNode); err != nil {
		t.Fatal(err)
	}
	all[0].until("the lost replica is gone", func(c *Controller) bool { return len(c.mu.topics[MetadataTopic].Partitions[0].Replicas) == 2 })
	cfg := all[2].cfg
	cfg.Host.FS = crashed
	all[2] = n.open(cfg)
	all[2].until("three voters", metadataVoters3)
	for _, m := range all {
		m.close()
	}
}

// What was made ready for a topic that is gone before its node reads of it is deleted.
func TestFoldersOfTopicsNeverSeen(t *testing.T) {
	n := newMemberNet(t)
	all := n.trioOf(0, vfs.NewMem(), vfs.NewMem(), vfs.NewMem())
	all[0].until("three voters", metadataVoters3)
	late, other := all[0], all[1]
	if late.Controller.meta().Epoch() != 0 {
		late, other = other, late
	}
	late.Controller.reader.Lock() // it reads nothing
	_, err := other.Controller.CreateTopic(testContext(t), TopicSpec{Name: "t", Partitions: 3})
	if err == nil {
		err = other.Controller.DeleteTopic(testContext(t), "t")
	}
	late.Controller.reader.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	late.until("the folders are gone", func(c *Controller) bool {
		keys, err := c.host.replicaKeys()
		return err == nil && len(c.mu.deleted) == 3 && len(keys) == 1
	})
	for _, m := range all {
		m.close()
	}
}

func breathe(ctx context.Context) {
	select {
	case <-time.After(10 * time.Millisecond):
	case <-ctx.Done():
	}
}

// holds waits until a node's replica has the values, in order.
func (m *member) holds(partition int32, want ...string) {
	m.net.t.Helper()
	ctx := testContext(m.net.t)
	var got []string
	for ctx.Err() == nil {
		if p := m.Controller.replica("t", partition); p != nil && p.r != nil {
			if got = values(m.net.t, p, 0); fmt.Sprint(got) == fmt.Sprint(want) {
				return
			}
		}
		breathe(ctx)
	}
	m.net.t.Errorf("node %d: partition %d holds %v, not %v", m.cfg.ID, partition, got, want)
}

func onThree(c *Controller) bool {
	for _, a := range c.mu.topics["t"].Partitions {
		if fmt.Sprint(voters(a)) != "[1 2 3]" || a.unsettled() {
			return false
		}
	}
	return true
}

// All three lose their power at once; what was acknowledged is there when they are back, at other addresses.
func TestPowerLossOfAll(t *testing.T) {
	t.Parallel() // it waits, mostly
	n := newMemberNet(t)
	fs := []*vfs.Mem{vfs.NewMem(), vfs.NewMem(), vfs.NewMem()}
	all := n.trioOf(2, fs...)
	for i := range 6 {
		produceTo(t, all, int32(i%2), fmt.Sprint("v", i))
	}
	for i, m := range all {
		fs[i] = fs[i].CrashClone(vfs.CrashOptions{})
		m.close()
	}
	again := n.trioOf(0, fs...)
	for _, m := range again {
		m.until("the topic", func(c *Controller) bool { return c.mu.topics["t"] != nil && len(c.mu.partitions) == 2 })
		m.holds(0, "v0", "v2", "v4")
		m.holds(1, "v1", "v3", "v5")
	}
	produceTo(t, again, 0, "v6")
	for _, m := range again {
		m.holds(0, "v0", "v2", "v4", "v6")
		m.close()
	}
}

// A node whose disk is empty comes back as a new replica of everything it had, and the others' records are there again.
func TestWipedDisk(t *testing.T) {
	t.Parallel() // it waits, mostly
	n := newMemberNet(t)
	all := n.trioOf(2, vfs.NewMem(), vfs.NewMem(), vfs.NewMem())
	produceTo(t, all, 0, "a")
	produceTo(t, all, 1, "b")
	old := all[2].Controller.replica("t", 0).spec.Replica
	all[2].close()
	all[2] = nil
	produceTo(t, all, 0, "c")
	again := n.open(n.config(3, vfs.NewMem(), joining(1, 2)))
	again.until("three voters again", func(c *Controller) bool {
		return c.mu.topics["t"] != nil && onThree(c) && metadataVoters3(c) && len(c.mu.partitions) == 2
	})
	again.holds(0, "a", "c")
	again.holds(1, "b")
	if now := again.Controller.replica("t", 0).spec.Replica; now == old {
		t.Errorf("the replica came back as %x", now)
	}
	all[2] = again
	for _, m := range all {
		m.close()
	}
}

// A node that is drained gives up its replicas and leaderships while records are written; then it is removed and never let in again.
func TestDrainAndRemove(t *testing.T) {
	t.Parallel() // it waits, mostly
	n := newMemberNet(t)
	ctx := testContext(t)
	fs := vfs.NewMem()
	one := n.open(n.config(1, fs, nil))
	if _, err := one.Controller.CreateTopic(ctx, TopicSpec{Name: "t", Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	produceTo(t, []*member{one}, 0, "a")
	two, three := n.open(n.config(2, vfs.NewMem(), joining(1))), n.open(n.config(3, vfs.NewMem(), joining(1)))
	if err := two.Controller.DrainNode(ctx, 1); err != nil {
		t.Fatal(err)
	}
	two.until("node 1 is drained", func(c *Controller) bool {
		for _, a := range c.mu.topics["t"].Partitions {
			if len(a.Replicas) != 1 || a.unsettled() || a.Replicas[0].Node == 1 {
				return false
			}
		}
		return true
	})
	if !two.Controller.Drained(1) {
		t.Error("node 1 is not drained")
	}
	if err := two.Controller.RemoveNode(ctx, 1); err != nil {
		t.Fatal(err)
	}
	two.until("the metadata without node 1", func(c *Controller) bool {
		a := c.mu.topics[MetadataTopic].Partitions[0]
		return len(a.Replicas) == 2 && len(voters(a)) > 0
	})
	produceTo(t, []*member{two, three}, 0, "b")
	for _, m := range []*member{two, three} {
		if m.Controller.replica("t", 0) != nil {
			m.holds(0, "a", "b")
		}
	}
	one.close()
	if _, err := n.tryOpen(n.config(1, fs, joining(2))); !errors.Is(err, ErrForeignDir) || !strings.Contains(err.Error(), "removed") {
		t.Errorf("a removed node opens: %v", err)
	}
	three.close()
	two.close()
}

// A node is removed and there is no other one for its replicas: they are made on the next that joins, but where a user asked for fewer.
func TestRemovedReplicasComeBack(t *testing.T) {
	t.Parallel() // it waits, mostly
	n := newMemberNet(t)
	ctx := testContext(t)
	one := n.open(n.config(1, vfs.NewMem(), nil))
	two, three := n.open(n.config(2, vfs.NewMem(), joining(1))), n.open(n.config(3, vfs.NewMem(), joining(1)))
	for _, name := range []string{"t", "fewer"} {
		if _, err := one.Controller.CreateTopic(ctx, TopicSpec{Name: name, Partitions: 1, Replicas: 3}); err != nil {
			t.Fatal(err)
		}
	}
	produceTo(t, []*member{one, two, three}, 0, "a")
	three.close()
	if err := one.Controller.RemoveNode(ctx, 3); err != nil {
		t.Fatal(err)
	}
	on := func(topic string, replicas int) func(*Controller) bool {
		return func(c *Controller) bool {
			a := c.mu.topics[topic].Partitions[0]
			return len(a.Replicas) == replicas && !a.unsettled()
		}
	}
	one.until("two replicas", on("t", 2))
	one.until("two replicas", on("fewer", 2))
	if err := one.Controller.SetReplicas(ctx, "fewer", 2); err != nil {
		t.Fatal(err)
	}
	four := n.open(n.config(4, vfs.NewMem(), joining(1)))
	four.until("three replicas again", on("t", 3))
	four.holds(0, "a")
	four.until("no replica that nobody wants", on("fewer", 2))
	for _, m := range []*member{one, two, four} {
		m.close()
	}
}

// A node id that is in use, and a directory of another cluster, are refused.
func TestJoinRefused(t *testing.T) {
	n := newMemberNet(t)
	one := n.open(n.config(1, vfs.NewMem(), nil))
	two := n.open(n.config(2, vfs.NewMem(), joining(1)))
	same := n.config(2, vfs.NewMem(), joining(1))
	same.Network.Transport, same.Network.ListenAddress = n.Host("elsewhere"), "elsewhere:7400"
	if _, err := n.tryOpen(same); !errors.Is(err, ErrNodeExists) {
		t.Errorf("an id in use: %v", err)
	}
	stray := vfs.NewMem()
	n.open(n.config(9, stray, nil)).close()
	if _, err := n.tryOpen(n.config(9, stray, joining(1))); !errors.Is(err, ErrForeignDir) || !strings.Contains(err.Error(), "cluster") {
		t.Errorf("a directory of another cluster: %v", err)
	}
	two.close()
	one.close()
}
