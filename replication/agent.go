package replication

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/billetlog/billet/segment"
)

// The agent is the part of the controller that every node has: it makes this node's replicas agree with the view.

func sortReplicas(r []ReplicaAssignment) {
	slices.SortFunc(r, func(a, b ReplicaAssignment) int { return cmp.Compare(a.Replica, b.Replica) })
}

// metadataReplica finds this node's replica of the metadata among its folders. Of several the newest counts: the others were removed.
func (h *Host) metadataReplica() (replica uint64, found bool, err error) {
	keys, err := h.replicaKeys()
	for _, k := range keys {
		if k.Shard == metadataShard && (!found || k.Replica > replica) {
			replica, found = k.Replica, true
		}
	}
	return replica, found, err
}

// replicaKeys lists the replicas that have a folder here.
func (h *Host) replicaKeys() ([]segment.Key, error) {
	names, err := h.cfg.FS.List(filepath.Join(h.cfg.Dir, partitionsDir))
	if err != nil {
		return nil, fmt.Errorf("replication: %w", err)
	}
	var out []segment.Key
	for _, name := range names {
		var k segment.Key
		if n, err := fmt.Sscanf(name, "%d-%d", &k.Shard, &k.Replica); n == 2 && err == nil && name == filepath.Base(h.replicaDir(k)) {
			out = append(out, k)
		}
	}
	return out, nil
}

// follow reads the metadata as it grows and makes the replicas agree.
func (c *Controller) follow() {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case <-c.moved:
		case <-retry.C:
		}
		err := c.read(c.ctx)
		if errors.Is(err, errView) {
			c.breakView(err)
			return
		}
		if err = cmpError(err, c.agree(c.ctx)); err != nil && c.ctx.Err() == nil {
			c.host.logger.Warn("replicas do not agree with the metadata yet", "err", err)
			retry.Reset(agentRetry)
		}
	}
}

// breakView notes that the metadata cannot be read any more: this node decides nothing and knows of nothing new.
func (c *Controller) breakView(err error) {
	c.mu.Lock()
	c.mu.broken = err
	c.changedLocked()
	c.mu.Unlock()
	if c.ctx.Err() == nil {
		c.host.logger.Error("the cluster's metadata cannot be read: this node follows it no more", "err", err)
		c.host.emit(Event{Kind: EventMetadata, Topic: MetadataTopic, Err: err})
	}
}

// agree starts, stops and changes this node's replicas as the view says.
func (c *Controller) agree(ctx context.Context) error {
	c.agent.Lock()
	defer c.agent.Unlock()
	c.mu.RLock()
	at, settled, troubled, deleted := c.mu.next, c.mu.settled, c.mu.troubled, len(c.mu.deleted)
	want := c.mu.replicasOf(c.host.cfg.Node.ID)
	running := make(map[uint64]*Partition, len(c.mu.partitions))
	for s, p := range c.mu.partitions {
		running[s] = p
	}
	c.mu.RUnlock()
	if at == settled && !troubled && at > 0 {
		return nil
	}
	delete(want, metadataShard)
	err := c.removeUnwanted(ctx, want, running)
	postponed, startErr := c.startWanted(ctx, want, running)
	err = errors.Join(err, startErr, c.sweepDeleted(deleted), c.sweepIdle())
	c.mu.Lock()
	c.mu.settled, c.mu.troubled = at, err != nil || postponed
	c.changedLocked()
	c.mu.Unlock()
	return err
}

// agreeCurrent is agree with a view that is known to be current.
func (c *Controller) agreeCurrent(ctx context.Context) error {
	c.agent.Lock()
	c.agent.current = true
	c.agent.Unlock()
	return c.agree(ctx)
}

func (c *Controller) removeUnwanted(ctx context.Context, want map[uint64]PartitionSpec, running map[uint64]*Partition) error {
	var out []*Partition
	for shard, p := range running {
		s, ok := want[shard]
		c.mu.RLock()
		gone := c.mu.gone(shard, p.spec.Replica)
		c.mu.RUnlock()
		switch {
		case ok && s.Replica == p.spec.Replica:
			if *p.settings.Load() != s.Settings {
				p.SetSettings(s.Settings)
			}
			p.setFloor(s.start)
		case gone:
			out = append(out, p)
		}
	}
	return c.removeAll(ctx, out)
}

// removeAll removes replicas for good: all of them, whatever becomes of one.
func (c *Controller) removeAll(ctx context.Context, parts []*Partition) error {
	errs := make([]error, len(parts))
	_ = inParallel(context.WithoutCancel(ctx), len(parts), func(i int) error {
		ctx, cancel := context.WithTimeout(ctx, snapshotTimeout) // one that does not stop is tried again, and holds up no other
		defer cancel()
		if errs[i] = c.host.RemovePartition(ctx, parts[i]); errs[i] == nil {
			c.mu.Lock()
			delete(c.mu.partitions, parts[i].spec.Shard)
			c.mu.Unlock()
		}
		return nil
	})
	return errors.Join(errs...)
}

// startWanted starts what does not run, several at a time. A learner's files are made when they are not there; those of a voter were lost then, and
// it comes up quarantined. As long as the view may be an old one, that is postponed: the replica may have been taken away since, and its files with it.
func (c *Controller) startWanted(ctx context.Context, want map[uint64]PartitionSpec, running map[uint64]*Partition) (postponed bool, _ error) {
	var specs []PartitionSpec
	for shard, s := range want {
		if p := running[shard]; p == nil || (p.spec.Replica != s.Replica && c.local(shard) == nil) {
			specs = append(specs, s)
		}
	}
	slices.SortFunc(specs, func(a, b PartitionSpec) int { return cmp.Compare(a.Shard, b.Shard) })
	errs := make([]error, len(specs))
	var later atomic.Bool
	doubt := !c.agent.current
	err := inParallel(ctx, len(specs), func(i int) error {
		p, err := c.host.startPartition(specs[i], specs[i].Learner && !doubt, doubt)
		if doubt && quarantines(err) {
			c.host.logger.Debug("a replica is damaged or was taken away", "topic", specs[i].Topic, "partition", specs[i].Partition, "err", err)
			later.Store(true)
			return nil
		}
		if err != nil {
			errs[i] = fmt.Errorf("starting %s-%d: %w", specs[i].Topic, specs[i].Partition, err)
			return nil
		}
		c.mu.Lock()
		c.mu.partitions[specs[i].Shard] = p
		c.mu.Unlock()
		return nil
	})
	for _, s := range specs {
		c.agent.idle[s.key()] = true // forgotten at once if it runs
	}
	return later.Load(), errors.Join(append(errs, err)...)
}

// sweepIdle deletes the folders of replicas that did not run when the records took them away: nothing stops then, of which they would be the rest.
func (c *Controller) sweepIdle() error {
	var errs []error
	for k := range c.agent.idle {
		p := c.host.partitionOf(k.Shard)
		c.mu.RLock()
		gone := c.mu.gone(k.Shard, k.Replica)
		c.mu.RUnlock()
		switch {
		case p != nil && p.spec.Replica == k.Replica:
		case !gone:
			continue
		default:
			if err := c.host.DeleteReplicaDir(k); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		delete(c.agent.idle, k)
	}
	return errors.Join(errs...)
}

// sweep deletes the folders of replicas that the records took away while this node was down, and reports those that no record knows.
func (c *Controller) sweep(context.Context) error {
	c.agent.Lock()
	defer c.agent.Unlock()
	names, err := c.host.cfg.FS.List(filepath.Join(c.host.cfg.Dir, partitionsDir))
	if err != nil {
		return fmt.Errorf("replication: %w", err)
	}
	for _, name := range names {
		var k segment.Key
		if n, err := fmt.Sscanf(name, "%d-%d", &k.Shard, &k.Replica); n != 2 || err != nil {
			continue
		}
		exact := name == filepath.Base(c.host.replicaDir(k))
		c.mu.Lock()
		gone := c.mu.gone(k.Shard, k.Replica)
		_, _, known := c.mu.partition(k.Shard)
		c.mu.nextShard = max(c.mu.nextShard, k.Shard+1) // never hand out an id whose files are there
		c.mu.Unlock()
		switch {
		case gone && exact && k != c.meta().spec.key():
			if err := c.host.DeleteReplicaDir(k); err != nil {
				return err
			}
		case !known && !gone:
			c.host.logger.Warn("a replica's folder belongs to no topic; it is left alone", "folder", name)
			c.host.emit(Event{Kind: EventOrphan, Detail: name})
		case exact && k.Shard != metadataShard:
			c.agent.idle[k] = true
		}
	}
	return nil
}

// sweepDeleted deletes the folders of deleted topics' replicas that never ran: they were made ready, and the topic was gone when this node read of it.
func (c *Controller) sweepDeleted(deleted int) error {
	if c.agent.swept == deleted {
		return nil
	}
	keys, err := c.host.replicaKeys()
	for _, k := range keys {
		c.mu.RLock()
		gone := c.mu.deleted[k.Shard]
		c.mu.RUnlock()
		if gone && c.host.partitionOf(k.Shard) == nil {
			err = errors.Join(err, c.host.DeleteReplicaDir(k))
		}
	}
	if err == nil {
		c.agent.swept = deleted
	}
	return err
}

// settleAll waits until every replica that is its group's only voter leads, or cannot: then its high watermark covers all that was ever
// acknowledged. A replica that was killed may not know yet that its group has others by now, one of which leads.
func (c *Controller) settleAll(ctx context.Context) error {
	c.mu.RLock()
	var alone []*Partition
	for _, p := range c.mu.partitions {
		if p.r != nil && len(p.r.record().Membership.Addresses) == 1 {
			alone = append(alone, p)
		}
	}
	c.mu.RUnlock()
	for _, p := range alone {
		if err := p.led(ctx); err != nil && ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// inParallel runs f for 0 to n-1, some at a time, and returns the first error.
func inParallel(ctx context.Context, n int, f func(i int) error) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	slots := make(chan struct{}, startParallel)
	for i := range max(n, 0) {
		mu.Lock()
		stop := first != nil || ctx.Err() != nil
		mu.Unlock()
		if stop {
			break
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := f(i); err != nil {
				mu.Lock()
				first = cmp.Or(first, err)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return cmp.Or(first, ctx.Err())
}
