package replication

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/billetlog/billet/segment"
)

// A node whose copy of the metadata is damaged gets another one from the other nodes, when there are any.

var errMetadataDamaged = errors.New("replication: the cluster's metadata is not available: this node's copy is damaged")

// replaceMetadata gives the damaged replica of the metadata up and joins the cluster with a new one. Its files stay until the records say that
// it is gone.
func (n *Node) replaceMetadata(ctx context.Context, damage error) (*Controller, error) {
	h := n.Host
	p := h.partitionOf(metadataShard)
	if p == nil || n.cfg.Network == nil || !h.othersVote(p) {
		return nil, damage
	}
	h.logger.Warn("this node's copy of the cluster's metadata is damaged: it asks the other nodes for another one", "err", damage)
	if err := h.abandon(ctx, p); err != nil {
		return nil, errors.Join(damage, err)
	}
	n.lostMetadata = p.spec.Replica
	defer func() { n.lostMetadata = 0 }()
	if err := n.join(ctx); err != nil {
		return nil, fmt.Errorf("%w: %w", damage, err)
	}
	return OpenController(ctx, h)
}

// othersVote says whether a replica's group has other voters, as far as its slot tells; where that is damaged too it may.
func (h *Host) othersVote(p *Partition) bool {
	if p.r != nil {
		return p.r.hasPeers()
	}
	slots, slot, err := segment.OpenSlotFile(h.cfg.FS, h.replicaDir(p.spec.key()))
	if err != nil {
		return true
	}
	records, err := loadRecords(slot)
	if err = errors.Join(err, slots.Close()); err != nil || len(records) == 0 {
		return true
	}
	for id := range newestRecord(records).Membership.Addresses {
		if id != p.spec.Replica {
			return true
		}
	}
	return false
}

// abandon stops a replica and forgets it, but leaves its files.
func (h *Host) abandon(ctx context.Context, p *Partition) error {
	gone := fmt.Errorf("%w: %s is replaced", ErrQuarantined, p.name())
	p.loseLeadership(gone, StateClosed, gone)
	p.cancel()
	p.life.Lock()
	defer p.life.Unlock()
	if err := h.stopRaft(ctx, p); err != nil {
		return err
	}
	if p.r != nil {
		err := p.syncJournaled() // they are not needed any more, so errors do not matter
		if h.db.journal != nil {
			h.db.journal.Forget(p.spec.key())
		}
		if err = errors.Join(err, p.r.closeFiles(false)); err != nil {
			h.logger.Debug("closing the files of a replica that is replaced", "partition", p.name(), "err", err)
		}
	}
	h.forget(p)
	return nil
}

// meta is this node's replica of the metadata.
func (c *Controller) meta() *Partition { return c.metadata.Load() }

// readFrom makes a replica the one that the metadata is read from.
func (c *Controller) readFrom(p *Partition) {
	c.reader.Lock()
	defer c.reader.Unlock()
	if c.reader.cursor != nil {
		c.reader.unwatch()
		c.reader.cursor.Close()
	}
	c.reader.cursor, c.reader.unwatch = p.NewCursor(), p.Notify(c.moved)
	select {
	case c.moved <- struct{}{}:
	default:
	}
}

// metadataStray is how long a node hears of no leader of the metadata before it asks the others whether its replica still counts.
const (
	metadataStray = 2 * time.Second
	metadataAsk   = 500 * time.Millisecond // between two such questions
)

// renewMetadata gives this node another replica of the metadata if its own is damaged or was taken out of the group. led is when a leader was
// last known.
func (c *Controller) renewMetadata(ctx context.Context, led time.Time) error {
	own := c.meta()
	q := c.host.registration()
	others, _, _ := own.others()
	switch {
	case c.host.cfg.peers == nil:
		return nil
	case (own.lost() != nil || own.Damage() != nil) && others > 0:
		q.Lost, q.Holds, q.Stays = own.spec.Replica, 0, own.lost() == nil
	case time.Since(led) < metadataStray:
		return nil
	}
	c.governed.Lock()
	due := time.Since(c.governed.renewed) >= metadataAsk
	if due {
		c.governed.renewed = time.Now()
	}
	c.governed.Unlock()
	if !due {
		return nil
	}
	var last error
	for _, id := range c.whoMayKnow(own) {
		if id == c.host.cfg.Node.ID && own.Epoch() == 0 {
			continue
		}
		given, err := c.registerAt(ctx, id, q)
		if err == nil && given.Replica != 0 && given.Replica != own.spec.Replica {
			return c.swapMetadata(ctx, given.Replica)
		}
		last = cmpError(err, last)
	}
	return last
}

// whoMayKnow are the nodes that the records name and those that vote with this node's replica: it may have no record at hand, since what of its log is
// committed it learns from its group alone.
func (c *Controller) whoMayKnow(own *Partition) []int32 {
	ids := c.nodes()
	for _, v := range own.voters() {
		if id := nodeOf(v); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (c *Controller) registerAt(ctx context.Context, node int32, q registration) (given registered, err error) {
	if node == c.host.cfg.Node.ID {
		return c.registerNode(ctx, q)
	}
	if !c.host.reachable(node) {
		return given, fmt.Errorf("%w: node %d", ErrUnreachable, node)
	}
	ctx, cancel := context.WithTimeout(ctx, barrierTimeout)
	defer cancel()
	var a decideAnswer
	if err := c.host.callJSON(ctx, node, requestDecide, decideRequest{Name: "register", Args: mustJSON(q)}, &a); err != nil {
		return given, err
	}
	if a.Err != "" {
		return given, errorOf(node, a.Code, a.Err)
	}
	return given, unmarshalJSON(a.Body, &given)
}

// swapMetadata goes on with another replica of the metadata, which begins empty. Of two folders that a crash leaves the newer one counts.
func (c *Controller) swapMetadata(ctx context.Context, replica uint64) error {
	c.agent.Lock()
	defer c.agent.Unlock()
	h, old := c.host, c.meta()
	if replica>>32 <= old.spec.Replica>>32 {
		return fmt.Errorf("%w: replica %x of the metadata is older than %x", ErrMembership, replica, old.spec.Replica)
	}
	spec := metadataSpec(replica)
	spec.Join, spec.Learner = true, true
	if err := h.PrepareReplica(spec); err != nil {
		return err
	}
	if h.partitionOf(metadataShard) == old {
		if err := h.abandon(ctx, old); err != nil {
			return err
		}
	}
	p, err := h.StartPartition(spec, false)
	if err != nil {
		return err
	}
	c.metadata.Store(p)
	c.readFrom(p)
	h.logger.Info("this node has a new replica of the metadata", "replica", fmt.Sprintf("%x", replica))
	return h.DeleteReplicaDir(old.spec.key())
}

// What a recovered cluster never hands out again although no record tells of it: what the lost majority may have handed out last.
const recoveredGap = 1 << 20

// recordSurvivor makes the records agree with a metadata group that was recovered: this node is its only member. It does nothing on other nodes.
func (c *Controller) recordSurvivor(ctx context.Context) error {
	node := c.host.cfg.Node
	if !node.Recovered {
		return nil
	}
	if err := c.meta().Writable(ctx); err != nil {
		return fmt.Errorf("replication: the recovered metadata: %w", err)
	}
	err := c.decide(ctx, func(ctx context.Context) error {
		c.mu.RLock()
		t, shard, block := c.mu.topics[MetadataTopic], c.mu.nextShard, c.mu.nextBlock
		c.mu.RUnlock()
		a := t.Partitions[0]
		me := c.meta().spec.Replica
		a.NextIncarnation = max(a.NextIncarnation, uint32(me>>32)+1)
		a.Replicas = slices.Clone([]ReplicaAssignment{{Node: node.ID, Replica: me}})
		return c.write(ctx, topicRecord(t.with(a), false), shardsRecord(shard+recoveredGap), producerIDsRecord(block+recoveredGap))
	})
	if err != nil {
		return err
	}
	node.Recovered = false
	if err := SaveNode(c.host.cfg.FS, c.host.cfg.Dir, node); err != nil {
		return err
	}
	c.host.cfg.Node.Recovered = false // the rest others read meanwhile
	return nil
}
