package replication

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/billetlog/billet/internal/vfs"
)

// An internal topic is made once, is there after a restart, and is not for users to make, change or delete.
func TestInternalTopic(t *testing.T) {
	k := openCluster(t, vfs.NewMem())
	defer func() { k.close() }()
	ctx := testContext(t)
	for _, name := range []string{OffsetsTopic, TransactionsTopic, MetadataTopic, "", ".", "..", "a/b", "ä", strings.Repeat("x", topicNameMax+1)} {
		if _, err := k.c.CreateTopic(ctx, TopicSpec{Name: name, Partitions: 1}); !errors.Is(err, ErrInvalidTopic) {
			t.Errorf("a user creates %q: %v", name, err)
		}
	}
	for _, name := range []string{MetadataTopic, "", "a b"} {
		if _, err := k.c.EnsureInternal(ctx, name, 1); !errors.Is(err, ErrInvalidTopic) {
			t.Errorf("internal %q: %v", name, err)
		}
	}
	made, err := k.c.EnsureInternal(ctx, OffsetsTopic, 3)
	if err != nil || len(made.Partitions) != 3 || !made.Internal || made.Settings.RetentionAge >= 0 || made.Settings.Fsync != FsyncCommit {
		t.Fatalf("%+v, %v", made, err)
	}
	for what, err := range map[string]error{
		"delete": k.c.DeleteTopic(ctx, OffsetsTopic),
		"alter":  k.c.AlterTopic(ctx, OffsetsTopic, map[string]string{"retention.ms": "1"}, nil),
		"extend": k.c.AddPartitions(ctx, OffsetsTopic, 5),
		"reduce": k.c.SetReplicas(ctx, OffsetsTopic, 1),
		"move":   k.c.Reassign(ctx, MetadataTopic, 0, []int32{1}),
	} {
		if !errors.Is(err, ErrInvalidTopic) {
			t.Errorf("%s: %v", what, err)
		}
	}
	appendBatch(t, k.partition(OffsetsTopic, 2), textBatch(t, "kept"), AcksAll)
	k.reopen()
	again, err := k.c.EnsureInternal(ctx, OffsetsTopic, 8)
	if err != nil || again.ID != made.ID || len(again.Partitions) != 3 {
		t.Errorf("after a restart: %+v, %v", again, err)
	}
	if p := k.partition(OffsetsTopic, 2); !p.Spec().Internal || fmt.Sprint(values(t, p, 0)) != "[kept]" {
		t.Errorf("%+v", p.Spec())
	}
	if _, err := k.c.CreateTopic(ctx, TopicSpec{Name: "__mine", Partitions: 1}); err != nil {
		t.Errorf("a name that only looks internal: %v", err)
	}
	if _, err := k.c.EnsureInternal(ctx, "__mine", 1); !errors.Is(err, ErrTopicExists) {
		t.Errorf("a user's topic in the way: %v", err)
	}
}

// Nodes that ask for the same internal topic at once get the same one.
func TestInternalTopicAtOnce(t *testing.T) {
	n := newMemberNet(t)
	all := n.trioOf(0, vfs.NewMem(), vfs.NewMem(), vfs.NewMem())
	ctx := testContext(t)
	type outcome struct {
		state TopicState
		err   error
	}
	made := make(chan outcome, 6)
	for i := range 6 {
		go func() {
			s, err := all[i%3].Controller.EnsureInternal(ctx, OffsetsTopic, 2)
			made <- outcome{s, err}
		}()
	}
	ids := map[[16]byte]bool{}
	for range 6 {
		o := <-made
		if o.err != nil {
			t.Fatal(o.err)
		}
		ids[o.state.ID] = true
		for _, a := range o.state.Partitions {
			if fmt.Sprint(voters(a)) != "[1 2 3]" {
				t.Errorf("partition %d is on %v", a.Partition, voters(a))
			}
		}
	}
	if len(ids) != 1 {
		t.Errorf("%d topics", len(ids))
	}
	for _, m := range all {
		m.close()
	}
}

// A node that was alone becomes the first of three: its internal topics get replicas on the others by themselves, all it had is there, and the
// partitions are led by all.
func TestInternalTopicGrows(t *testing.T) {
	t.Parallel() // it waits, mostly
	n := newMemberNet(t)
	ctx := testContext(t)
	one := n.open(n.config(1, vfs.NewMem(), nil))
	if _, err := one.Controller.EnsureInternal(ctx, OffsetsTopic, 3); err != nil {
		t.Fatal(err)
	}
	if _, err := one.Controller.CreateTopic(ctx, TopicSpec{Name: "t", Partitions: 1}); err != nil {
		t.Fatal(err)
	}
	p, err := one.Controller.Partition(OffsetsTopic, 1)
	if err != nil {
		t.Fatal(err)
	}
	writable(t, p)
	if r := appendBatch(t, p, textBatch(t, "weeks ago"), AcksAll); r.Err != nil {
		t.Fatal(r.Err)
	}
	two := n.open(n.config(2, vfs.NewMem(), joining(1)))
	three := n.open(n.config(3, vfs.NewMem(), joining(1, 2)))
	three.until("the topic on three nodes", func(c *Controller) bool {
		s := c.mu.topics[OffsetsTopic]
		if s == nil {
			return false
		}
		first := []int32{1} // of the other topic
		for _, a := range s.Partitions {
			if fmt.Sprint(voters(a)) != "[1 2 3]" || a.unsettled() {
				return false
			}
			first = append(first, a.Replicas[0].Node)
		}
		slices.Sort(first)
		return len(slices.Compact(first)) == 3
	})
	if a := three.Controller.topic("t").Partitions[0]; fmt.Sprint(voters(a)) != "[1]" {
		t.Errorf("a user's topic is on %v", voters(a))
	}
	// A drain that has nowhere to put them leaves the others, and they come back with the node.
	if err := three.Controller.DrainNode(ctx, 2); err != nil {
		t.Fatal(err)
	}
	on := func(want string) func(c *Controller) bool {
		return func(c *Controller) bool {
			for _, a := range c.mu.topics[OffsetsTopic].Partitions {
				if fmt.Sprint(voters(a)) != want || a.unsettled() {
					return false
				}
			}
			return true
		}
	}
	three.until("the drained node has none", on("[1 3]"))
	if err := three.Controller.ActivateNode(ctx, 2); err != nil {
		t.Fatal(err)
	}
	three.until("three again", on("[1 2 3]"))
	one.close()
	held := three.Controller.replica(OffsetsTopic, 1)
	waitHW(t, held, 1)
	if got := values(t, held, 0); fmt.Sprint(got) != "[weeks ago]" {
		t.Errorf("after the first node is gone: %v", got)
	}
	three.close()
	two.close()
}

// A topic can be made on given nodes, and asked for without being made.
func TestCreateTopicPlaced(t *testing.T) {
	n := newMemberNet(t)
	all := n.trioOf(0, vfs.NewMem(), vfs.NewMem(), vfs.NewMem())
	ctx, c := testContext(t), all[1].Controller
	all[0].until("three voters", metadataVoters3)
	for what, spec := range map[string]TopicSpec{
		"another count of partitions": {Partitions: 2, Assignments: [][]int32{{1}}},
		"another count of replicas":   {Replicas: 1, Assignments: [][]int32{{1, 2}}},
		"uneven":                      {Assignments: [][]int32{{1, 2}, {1}}},
		"none":                        {Assignments: [][]int32{{}}},
		"a node twice":                {Assignments: [][]int32{{1, 1}}},
		"a node that is none":         {Assignments: [][]int32{{1, 7}}},
	} {
		spec.Name = "t"
		if _, err := c.CreateTopic(ctx, spec); !errors.Is(err, ErrInvalidAssignment) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, spec := range map[string]TopicSpec{
		"too many replicas": {Name: "t", Partitions: 1, Replicas: 4, ValidateOnly: true},
		"a bad setting":     {Name: "t", Partitions: 1, Config: map[string]string{"x": "y"}, ValidateOnly: true},
		"a bad name":        {Name: "?", Partitions: 1, ValidateOnly: true},
	} {
		if _, err := c.CreateTopic(ctx, spec); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	spec := TopicSpec{Name: "t", Assignments: [][]int32{{3, 1}, {2, 3}, {1, 2}}, ValidateOnly: true}
	if s, err := c.CreateTopic(ctx, spec); err != nil || len(s.Partitions) != 3 {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := c.CreateTopic(ctx, TopicSpec{Name: "t", Partitions: 2, ValidateOnly: true}); err != nil || len(s.Partitions[1].Replicas) != 3 {
		t.Errorf("%+v, %v", s, err)
	}
	if _, ok := c.Topic("t"); ok {
		t.Error("a topic that was only asked for was made")
	}
	spec.ValidateOnly = false
	s, err := c.CreateTopic(ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range s.Partitions {
		if got := replicaNodes(a); !slices.Equal(got, spec.Assignments[i]) {
			t.Errorf("partition %d is on %v", i, got)
		}
	}
	if _, err := c.CreateTopic(ctx, TopicSpec{Name: "t", Partitions: 1, ValidateOnly: true}); !errors.Is(err, ErrTopicExists) {
		t.Errorf("a name that is taken: %v", err)
	}
	for _, m := range all {
		m.close()
	}
}
