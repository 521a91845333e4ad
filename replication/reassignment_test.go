package replication

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
)

// A partition on its way says so, and goes back when that is cancelled; the preferred replica leads when it is told to.
func TestReassignments(t *testing.T) {
	t.Parallel() // it waits, mostly
	n := newMemberNet(t)
	all := n.trioOf(0, vfs.NewMem(), vfs.NewMem(), vfs.NewMem())
	ctx, c := testContext(t), all[1].Controller
	all[0].until("three voters", metadataVoters3)
	if _, err := c.CreateTopic(ctx, TopicSpec{Name: "t", Assignments: [][]int32{{1, 2}, {2, 3}}}); err != nil {
		t.Fatal(err)
	}
	produceTo(t, all, 0, "a")
	for what, err := range map[string]error{
		"cancel nothing":       c.CancelReassign(ctx, "t", 0),
		"unknown topic":        c.CancelReassign(ctx, "u", 0),
		"unknown partition":    c.ElectPreferred(ctx, "t", 5),
		"it leads":             electAgain(t, c, "t", 0),
		"the metadata's first": c.ElectPreferred(ctx, MetadataTopic, 0),
	} {
		want := map[string]error{"cancel nothing": ErrNoReassignment, "unknown topic": ErrUnknownTopic, "unknown partition": ErrUnknownTopic,
			"it leads": ErrElectionNotNeeded, "the metadata's first": ErrInvalidTopic}[what]
		if !errors.Is(err, want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if got := c.Reassignments(); len(got) != 0 {
		t.Errorf("nothing is on its way: %+v", got)
	}
	// The third node is down, so that the partition stays on its way.
	cfg := all[2].cfg
	all[2].close()
	eventually(t, "the third node is down", func() bool { return !all[0].Alive(3) && !all[1].Alive(3) })
	if err := c.Reassign(ctx, "t", 0, []int32{3, 2}); err != nil {
		t.Fatal(err)
	}
	want := Reassignment{Topic: "t", Partition: 0, Replicas: []int32{3, 2, 1}, Adding: []int32{3}, Removing: []int32{1}}
	if got := c.Reassignments(); len(got) != 1 || fmt.Sprint(got[0]) != fmt.Sprint(want) {
		t.Errorf("on its way: %+v", got)
	}
	if err := c.CancelReassign(ctx, "t", 0); err != nil {
		t.Fatal(err)
	}
	settled := func(on ...int32) {
		t.Helper()
		all[1].until("the partition is back", func(c *Controller) bool {
			a := c.mu.topics["t"].Partitions[0]
			return !a.unsettled() && slices.Equal(replicaNodes(a), on) && a.Origin == nil
		})
	}
	settled(1, 2)
	all[2] = n.open(cfg)
	eventually(t, "the third node is up", func() bool { return all[0].Alive(3) && all[1].Alive(3) })
	// A move that was carried out has nothing to go back to.
	if err := c.Reassign(ctx, "t", 0, []int32{2, 3}); err != nil {
		t.Fatal(err)
	}
	settled(2, 3)
	if err := c.CancelReassign(ctx, "t", 0); !errors.Is(err, ErrNoReassignment) {
		t.Errorf("cancelling what is through: %v", err)
	}
	// The one that does not lead is made the preferred one by its record, and takes over.
	lead := func() int32 {
		g, _, err := c.groupOf(ctx, c.topic("t").Partitions[0])
		_ = err
		return nodeOf(g.Leader)
	}
	eventually(t, "a leader", func() bool { return lead() != 0 })
	order := []int32{2, 3}
	if lead() == 2 {
		order = []int32{3, 2}
	}
	if err := c.Reassign(ctx, "t", 0, order); err != nil {
		t.Fatal(err)
	}
	settled(order...)
	if err := electAgain(t, c, "t", 0); err != nil && !errors.Is(err, ErrElectionNotNeeded) { // the governor may have been quicker
		t.Error(err)
	}
	eventually(t, "the preferred replica leads", func() bool { return lead() == order[0] })
	for _, m := range all {
		m.close()
	}
}

// electAgain asks until the partition has a leader and the preferred replica the log.
func electAgain(t *testing.T, c *Controller, topic string, partition int32) (err error) {
	eventually(t, "an answer", func() bool {
		err = c.ElectPreferred(testContext(t), topic, partition)
		return !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrPreferredLeader)
	})
	return err
}

// A node lists what it has of each partition.
func TestLocalReplicas(t *testing.T) {
	k := openCluster(t, vfs.NewMem())
	defer func() { k.close() }()
	k.create("b", 1, nil)
	k.create("a", 2, nil)
	appendBatch(t, k.partition("a", 1), sizedBatch(t, 3, 1000), AcksAll)
	var got []string
	for _, r := range k.c.LocalReplicas() {
		if r.Topic == "a" && r.Partition == 1 && (r.Bytes < 3000 || r.End != 3 || r.Start != 0 || r.Lag != 0 || r.State != StateLeader) {
			t.Errorf("%+v", r)
		}
		got = append(got, fmt.Sprint(r.Topic, "-", r.Partition, r.Internal))
	}
	if want := "[__cluster_metadata-0 true a-0 false a-1 false b-0 false]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	if k.host.Dir() != "/data" {
		t.Error(k.host.Dir())
	}
}
