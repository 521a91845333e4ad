package replication

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
)

// retryChange repeats a change of the membership as long as its errors say that it may work.
func retryChange(t testing.TB, change func(ctx context.Context) error) error {
	t.Helper()
	ctx := testContext(t)
	for {
		err := change(ctx)
		if ctx.Err() != nil || !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrBusy) && !errors.Is(err, ErrAmbiguous) {
			return err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

func mustChange(t testing.TB, change func(ctx context.Context) error) {
	t.Helper()
	if err := retryChange(t, change); err != nil {
		t.Fatal(err)
	}
}

// membership reads it until a leader answers.
func membership(t testing.TB, p *Partition) members {
	t.Helper()
	var m members
	mustChange(t, func(ctx context.Context) (err error) {
		m.voters, m.learners, m.removed, err = p.Membership(ctx)
		return err
	})
	return m
}

func (m members) String() string {
	return fmt.Sprintf("voters %v learners %v removed %v", m.voters, m.learners, m.removed)
}

func TestMembershipChanges(t *testing.T) {
	c := newTrio(t)
	defer c.close()
	c.produce(-1, "a")
	l := c.leader(-1)
	p, other := c.parts[l], c.parts[(l+1)%3]
	learner, again := replicaID(4, 2), replicaID(4, 3)
	for range 2 { // what is so already is no error
		mustChange(t, func(ctx context.Context) error { return p.AddLearner(ctx, learner, 4) })
	}
	if m := membership(t, other); len(m.voters) != 3 || len(m.learners) != 1 || m.learners[learner] != 4 || len(m.removed) != 0 {
		t.Errorf("a follower says %v", m)
	}
	if err := other.AddLearner(testContext(t), again, 4); !errors.Is(err, ErrNotLeader) {
		t.Errorf("a follower's change: %v", err)
	}
	refused := map[string]func(ctx context.Context) error{
		"second replica of a node": func(ctx context.Context) error { return p.AddLearner(ctx, again, 4) },
		"voter as learner":         func(ctx context.Context) error { return p.AddLearner(ctx, replicaID(1, 1), 1) },
		"promotion of nobody":      func(ctx context.Context) error { return p.Promote(ctx, again, 4) },
		"id of another node":       func(ctx context.Context) error { return p.AddLearner(ctx, replicaID(5, 1), 6) },
		"id zero":                  func(ctx context.Context) error { return p.Remove(ctx, 0) },
	}
	for name, change := range refused {
		if err := retryChange(t, change); !errors.Is(err, ErrMembership) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range 2 {
		mustChange(t, func(ctx context.Context) error { return p.Remove(ctx, learner) })
	}
	if err := retryChange(t, func(ctx context.Context) error { return p.AddLearner(ctx, learner, 4) }); !errors.Is(err, ErrMembership) {
		t.Errorf("an id for the second time: %v", err)
	}
	if m := membership(t, p); len(m.voters) != 3 || len(m.learners) != 0 || !m.removed[learner] {
		t.Errorf("in the end %v", m)
	}
	c.awaitRecords()
}

// awaitRecords waits until every replica has a snapshot record that covers the membership changes it has seen.
func (c *trio) awaitRecords() {
	c.t.Helper()
	deadline := time.Now().Add(testTimeout)
	for _, p := range c.parts {
		awaitRecord(c.t, p, deadline)
	}
}

func awaitRecord(t testing.TB, p *Partition, deadline time.Time) {
	t.Helper()
	for {
		p.r.mu.Lock()
		record, last := p.r.recordLocked().Index, p.r.mu.lastConfig
		p.r.mu.Unlock()
		if record >= last {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the record of %s stays at %d, the membership changed at %d", p.name(), record, last)
		}
		<-time.After(10 * time.Millisecond)
	}
}

// The last voter cannot go, and a change that nobody can commit ends with its context.
func TestMembershipChangeIsBounded(t *testing.T) {
	c := newTrio(t)
	defer c.close()
	c.produce(-1, "a")
	l := c.leader(-1)
	for i := range c.parts {
		if i != l {
			c.net.isolate(int32(i+1), true)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	err := c.parts[l].AddLearner(ctx, replicaID(4, 2), 4)
	if !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrAmbiguous) && !errors.Is(err, ErrBusy) {
		t.Errorf("a change without a quorum: %v", err)
	}
}

// Power fails right after each change, and all that was not synced is gone: the node finds the membership that it told of.
func TestMembershipSurvivesPowerLoss(t *testing.T) {
	t.Parallel() // it waits, mostly
	steps := []func(*Partition, context.Context) error{
		func(p *Partition, ctx context.Context) error { return p.AddLearner(ctx, replicaID(2, 1), 2) },
		func(p *Partition, ctx context.Context) error { return p.AddLearner(ctx, replicaID(3, 1), 3) },
		func(p *Partition, ctx context.Context) error { return p.Remove(ctx, replicaID(2, 1)) },
		func(p *Partition, ctx context.Context) error { return p.AddLearner(ctx, replicaID(2, 2), 2) },
		func(p *Partition, ctx context.Context) error { return p.Remove(ctx, replicaID(3, 1)) },
	}
	for _, policy := range []Fsync{FsyncCommit, FsyncInterval} {
		for _, recorded := range []bool{false, true} {
			t.Run(fmt.Sprintf("fsync=%v/recorded=%v", policy, recorded), func(t *testing.T) {
				fs := vfs.NewMem()
				spec := testSpec(t, 1)
				spec.Settings.Fsync = policy
				for i, step := range steps {
					n := memNode1(t, fs)
					p := n.start(spec, i == 0)
					writable(t, p)
					if r := appendBatch(t, p, textBatch(t, fmt.Sprint("before", i)), AcksAll); r.Err != nil {
						t.Fatal(r.Err)
					}
					mustChange(t, func(ctx context.Context) error { return step(p, ctx) })
					if recorded {
						p.recordMembership(testContext(t)) // what the host does every half second
						awaitRecord(t, p, time.Now().Add(testTimeout))
					}
					want := membership(t, p)
					fs2 := fs.CrashClone(vfs.CrashOptions{Rand: rand.New(rand.NewPCG(uint64(i), 5))})
					n.close()
					n = memNode1(t, fs2)
					p = n.start(spec, false)
					writable(t, p)
					if got := membership(t, p); got.String() != want.String() {
						t.Errorf("step %d: after the power cut %v, told was %v", i, got, want)
					}
					if got := values(t, p, 0); len(got) < i+1 {
						t.Errorf("step %d: %v", i, got)
					}
					n.close()
					fs = fs2
				}
			})
		}
	}
}

// The only voter stays.
func TestLastVoterStays(t *testing.T) {
	n := newTestNode(t)
	p := n.start(testSpec(t, 1), true)
	writable(t, p)
	if err := p.Remove(testContext(t), replicaID(1, 1)); !errors.Is(err, ErrMembership) {
		t.Errorf("removing the last voter: %v", err)
	}
	n.close()
	if err := p.AddLearner(context.Background(), replicaID(2, 1), 2); !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrClosed) {
		t.Errorf("a change after Close: %v", err)
	}
	if _, _, _, err := p.Membership(context.Background()); !errors.Is(err, ErrClosed) {
		t.Errorf("a look after Close: %v", err)
	}
}

// A replica that has joined and that nobody has spoken to is empty, and stays so over clean and unclean ends.
func TestJoinedReplicaWaits(t *testing.T) {
	for name, spec := range map[string]PartitionSpec{"voter": {Join: true}, "learner": {Join: true, Learner: true}} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			base := testSpec(t, 1)
			base.Join, base.Learner = spec.Join, spec.Learner
			role := base.role()
			for round := range 3 {
				n := memNode1(t, fs)
				p := n.start(base, round == 0)
				base.Join, base.Learner = false, false // the files remember
				if s, cause := p.State(); s != StateStarting || p.HighWatermark() != 0 || p.EndOffset() != 0 || p.r.role() != role {
					t.Errorf("round %d: state %v, %v, high watermark %d, end %d, role %d", round, s, cause, p.HighWatermark(), p.EndOffset(), p.r.role())
				}
				if r := appendBatch(t, p, textBatch(t, "x"), AcksAll); !errors.Is(r.Err, ErrNotLeader) {
					t.Errorf("an append: %v", r.Err)
				}
				fs2 := fs.CrashClone(vfs.CrashOptions{Rand: rand.New(rand.NewPCG(uint64(round), 5))})
				n.close()
				if round == 0 {
					fs = fs2
				}
				if n.host.parked.Load() != 0 {
					t.Error("a worker is parked")
				}
			}
		})
	}
}
