package replication

import (
	"cmp"
	"fmt"
	"sort"
)

// claim takes the shard for a partition that is about to be opened; false when there is one.
func (h *Host) claim(p *Partition) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.partitions[p.spec.Shard] != nil || h.mu.opening[p.spec.Shard] != nil {
		return false
	}
	h.mu.opening[p.spec.Shard] = p
	return true
}

// publish lists a partition whose files are open, or damaged, unless the host closes: that has looked at the list already.
func (h *Host) publish(p *Partition) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return fmt.Errorf("%w: host", ErrClosed)
	}
	delete(h.mu.opening, p.spec.Shard)
	h.mu.partitions[p.spec.Shard] = p
	return nil
}

// partitionOf is the replica of a shard that runs here, or nil.
func (h *Host) partitionOf(shard uint64) *Partition {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.partitions[shard]
}

// claimed is the replica of a shard that runs here, or is about to. Only its spec may be looked at.
func (h *Host) claimed(shard uint64) *Partition {
	h.mu.Lock()
	defer h.mu.Unlock()
	return cmp.Or(h.mu.partitions[shard], h.mu.opening[shard])
}

// Partitions lists the local replicas, by shard.
func (h *Host) Partitions() []*Partition {
	h.mu.Lock()
	out := make([]*Partition, 0, len(h.mu.partitions))
	for _, p := range h.mu.partitions {
		out = append(out, p)
	}
	h.mu.Unlock()
	sort.Slice(out, func(i, j int) bool { return out[i].spec.Shard < out[j].spec.Shard })
	return out
}

// forget takes a partition that does not run off the host's lists.
func (h *Host) forget(p *Partition) {
	p.cancel()
	h.db.replicas.Delete(p.spec.key())
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.mu.partitions, p.spec.Shard)
	delete(h.mu.opening, p.spec.Shard)
	delete(h.mu.full, p.spec.Shard)
	delete(h.mu.campaign, p)
}
