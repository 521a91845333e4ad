package replication

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
	"github.com/billetlog/billet/segment"
)

// begins holds what a partition gives against where it has to begin.
func begins(t testing.TB, p *Partition, start int64, want ...string) {
	t.Helper()
	if got := p.StartOffset(); got != start {
		t.Errorf("the log begins at %d, want %d", got, start)
	}
	c := p.NewCursor()
	defer c.Close()
	if _, err := c.Read(nil, start-1, 1<<20); start > 0 && !errors.Is(err, segment.ErrCompacted) {
		t.Errorf("reading below the start: %v", err)
	}
	if got := values(t, p, start); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the log has %v, want %v", got, want)
	}
}

// Records that were deleted are gone at once and after a restart, and their segments with the next retention.
func TestDeleteRecords(t *testing.T) {
	k := openCluster(t, vfs.NewMem())
	defer func() { k.close() }()
	ctx := testContext(t)
	k.create("t", 2, map[string]string{"segment.bytes": "65536", "retention.ms": "-1"})
	if _, err := k.c.EnsureInternal(ctx, OffsetsTopic, 1); err != nil {
		t.Fatal(err)
	}
	p := k.partition("t", 1)
	for i := range 4 {
		if r := appendBatch(t, p, textBatch(t, fmt.Sprint("v", i)), AcksAll); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	for what, c := range map[string]struct {
		topic     string
		partition int32
		before    int64
		want      error
	}{
		"above the high watermark": {"t", 1, 5, ErrOffsetOutOfRange},
		"no offset":                {"t", 1, -2, ErrOffsetOutOfRange},
		"no topic":                 {"u", 1, 0, ErrUnknownTopic},
		"no partition":             {"t", 2, 0, ErrUnknownTopic},
		"an internal topic":        {OffsetsTopic, 0, 0, ErrInvalidTopic},
	} {
		if _, err := k.c.DeleteRecords(ctx, c.topic, c.partition, c.before); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if at, err := k.c.DeleteRecords(ctx, "t", 1, 3); at != 3 || err != nil {
		t.Errorf("deleted below %d, %v", at, err)
	}
	if at, err := k.c.DeleteRecords(ctx, "t", 1, 2); at != 3 || err != nil {
		t.Errorf("what is deleted comes back: %d, %v", at, err)
	}
	begins(t, p, 3, "v3")
	begins(t, k.partition("t", 0), 0)
	if at, _, ok, err := p.OffsetForTime(0); at != 3 || !ok || err != nil {
		t.Errorf("by time: %d, %v, %v", at, ok, err)
	}
	checkEpochs(t, p)
	k.reopen()
	p = k.partition("t", 1)
	begins(t, p, 3, "v3")
	for range 20 {
		appendBatch(t, p, sizedBatch(t, 1, 10<<10), AcksAll)
	}
	before := p.Size()
	if at, err := k.c.DeleteRecords(ctx, "t", 1, -1); at != 24 || err != nil {
		t.Errorf("all deleted: %d, %v", at, err)
	}
	begins(t, p, 24)
	p.retain(ctx, time.Now())
	if now := p.Size(); now > before/4 || p.r.currentLog().StartOffset() != 24 {
		t.Errorf("%d bytes of %d are left, the log begins at %d", now, before, p.r.currentLog().StartOffset())
	}
	appendBatch(t, p, textBatch(t, "after"), AcksAll)
	k.reopen()
	begins(t, k.partition("t", 1), 24, "after")
	if err := k.c.DeleteTopic(ctx, "t"); err != nil {
		t.Fatal(err)
	}
	if len(k.c.mu.starts) != 0 {
		t.Errorf("starts of a deleted topic are kept: %v", k.c.mu.starts)
	}
}

// Internal topics are trimmed by who knows what they need, and no others in that way.
func TestTrimInternal(t *testing.T) {
	k := openCluster(t, vfs.NewMem())
	defer func() { k.close() }()
	ctx := testContext(t)
	k.create("t", 1, nil)
	if _, err := k.c.EnsureInternal(ctx, OffsetsTopic, 1); err != nil {
		t.Fatal(err)
	}
	p := k.partition(OffsetsTopic, 0)
	for i := range 3 {
		if r := appendBatch(t, p, textBatch(t, fmt.Sprint("v", i)), AcksAll); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	for _, topic := range []string{"t", MetadataTopic} {
		if _, err := k.c.TrimInternal(ctx, topic, 0, 0); !errors.Is(err, ErrInvalidTopic) {
			t.Errorf("trimming %s: %v", topic, err)
		}
	}
	if at, err := k.c.TrimInternal(ctx, OffsetsTopic, 0, 2); at != 2 || err != nil {
		t.Errorf("trimmed to %d, %v", at, err)
	}
	k.reopen()
	begins(t, k.partition(OffsetsTopic, 0), 2, "v2")
}

// All replicas begin where the records that were deleted end: who follows, who leads next, and one that comes later.
func TestDeleteRecordsOfMany(t *testing.T) {
	t.Parallel() // it waits, mostly
	n := newMemberNet(t)
	fs := []*vfs.Mem{vfs.NewMem(), vfs.NewMem(), vfs.NewMem()}
	all := n.trioOf(0, fs...)
	ctx := testContext(t)
	all[0].until("three voters", metadataVoters3)
	if _, err := all[0].Controller.CreateTopic(ctx, TopicSpec{Name: "t", Assignments: [][]int32{{1, 2}}}); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		produceTo(t, all, 0, fmt.Sprint("v", i))
	}
	deleted := func(before int64) (at int64) {
		eventually(t, "the leader deletes", func() bool {
			for _, m := range all {
				if m == nil {
					continue
				}
				var err error
				if at, err = m.Controller.DeleteRecords(ctx, "t", 0, before); err == nil {
					return true
				} else if !errors.Is(err, ErrNotLeader) {
					t.Fatal(err)
				}
			}
			return false
		})
		return at
	}
	if at := deleted(3); at != 3 {
		t.Errorf("deleted below %d", at)
	}
	for i := range 2 { // who follows knows it before the answer
		if at := all[i].Controller.replica("t", 0).floor.Load(); at != 3 {
			t.Errorf("node %d begins at %d", i+1, at)
		}
	}
	replica := func(m *member) *Partition {
		m.until("the replica", func(c *Controller) bool { return c.mu.partitions[c.mu.topics["t"].Partitions[0].Shard] != nil })
		p := m.Controller.replica("t", 0)
		waitHW(t, p, 5)
		eventually(t, "the start", func() bool { return p.StartOffset() == 3 })
		return p
	}
	begins(t, replica(all[0]), 3, "v3", "v4")
	begins(t, replica(all[1]), 3, "v3", "v4")
	if _, err := all[2].Controller.DeleteRecords(ctx, "t", 0, 4); !errors.Is(err, ErrNotLeader) {
		t.Errorf("where there is no replica: %v", err)
	}
	if err := all[1].Controller.Reassign(ctx, "t", 0, []int32{3, 2}); err != nil {
		t.Fatal(err)
	}
	all[2].until("the new replica votes", func(c *Controller) bool {
		a := c.mu.topics["t"].Partitions[0]
		return fmt.Sprint(voters(a)) == "[2 3]" && !a.unsettled()
	})
	begins(t, replica(all[2]), 3, "v3", "v4")
	cfg := all[1].cfg
	all[1].close()
	all[1] = n.open(cfg)
	begins(t, replica(all[1]), 3, "v3", "v4")
	for _, m := range all {
		m.close()
	}
}

// A node that is asked whether it knows what was deleted answers when it does.
func TestDeletedIsWaitedFor(t *testing.T) {
	k := openCluster(t, vfs.NewMem())
	defer k.close()
	k.create("t", 1, nil)
	p := k.partition("t", 0)
	if r := appendBatch(t, p, textBatch(t, "v"), AcksAll); r.Err != nil {
		t.Fatal(r.Err)
	}
	q := deleteRecordsRequest{fmt.Sprintf("%x", p.spec.TopicID), 0, 1}
	ctx, cancel := context.WithTimeout(testContext(t), 10*time.Millisecond)
	defer cancel()
	if _, err := k.c.answerDeleted(ctx, 2, mustJSON(q)); !errors.Is(err, ErrBusy) {
		t.Errorf("before: %v", err)
	}
	if _, err := k.c.answerDeleted(ctx, 2, []byte("{")); err == nil {
		t.Error("half a request was answered")
	}
	if _, err := ask(testContext(t), k.c, "delete-records", q, (*Controller).deleteRecords); err != nil {
		t.Fatal(err)
	}
	p.floor.Store(0) // as if the view had not come to the replica yet
	if _, err := k.c.answerDeleted(testContext(t), 2, mustJSON(q)); err != nil || p.floor.Load() != 1 {
		t.Errorf("afterwards: %v, the replica begins at %d", err, p.floor.Load())
	}
}

// A replica that is behind what was deleted gives nothing, and begins at its own end until it has the rest.
func TestDeletedAheadOfReplica(t *testing.T) {
	n := newTestNode(t)
	spec := testSpec(t, 1)
	spec.start = 2
	p := n.start(spec, true)
	writable(t, p)
	begins(t, p, 0)
	appendBatch(t, p, textBatch(t, "a"), AcksAll)
	begins(t, p, 1)
	appendBatch(t, p, textBatch(t, "b"), AcksAll)
	appendBatch(t, p, textBatch(t, "c"), AcksAll)
	begins(t, p, 2, "c")
	n.close()
}

// What is written after a recovery that lost records is not taken for what was deleted among those.
func TestDeleteRecordsThenRecover(t *testing.T) {
	t.Parallel() // it waits, mostly
	h := newHerd(t, 5, nil)
	defer h.closeAll()
	h.groupOn("t", nil, 1, 2, 3)
	end := h.produce("t", "a", "b", "c")
	h.eventually("node 3 has all", func() bool { return h.replica(2, "t").EndOffset() == end })
	p := h.replica(2, "t")
	q := deleteRecordsRequest{fmt.Sprintf("%x", p.spec.TopicID), 0, end + 5} // as if the leader had had more
	if _, err := ask(testContext(t), h.all[4].Controller, "delete-records", q, (*Controller).deleteRecords); err != nil {
		t.Fatal(err)
	}
	h.down(0, 1)
	h.eventually("recovery", func() bool {
		ctx, cancel := context.WithTimeout(testContext(t), testTimeout/2)
		defer cancel()
		_, err := h.all[4].Controller.RecoverPartition(ctx, "t", 0)
		return err == nil
	})
	h.produce("t", "d")
	h.eventually("the new group", func() bool { now := h.replica(2, "t"); return now != nil && now != p && now.HighWatermark() == end+1 })
	begins(t, h.replica(2, "t"), end, "d")
}
