package transport

import "fmt"

// Cluster is the cluster that the node belongs to, zero if none yet.
func (n *Node) Cluster() ClusterID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.cluster
}

// SetCluster makes a node that was started without Options.ClusterID a member. The peers with an address are dialled at once. It takes
// effect once: the same id again is no error. Errors: ErrInvalidOptions (id is zero), ErrWrongCluster (it belongs to another), ErrClosed.
func (n *Node) SetCluster(id ClusterID) error {
	if id == (ClusterID{}) {
		return invalid("ClusterID", "is zero")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.mu.closed:
		return ErrClosed
	case n.mu.cluster == id:
		return nil
	case n.mu.cluster != ClusterID{}:
		return fmt.Errorf("%w: node %d belongs to %x and cannot change to %x", ErrWrongCluster, n.opts.ID, n.mu.cluster, id)
	}
	n.mu.cluster = id
	close(n.joined)
	return nil
}

// noCluster is the error of what only a member of a cluster can do, nil if the node is one.
func (n *Node) noCluster() error {
	if n.Cluster() != (ClusterID{}) {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnreachable, ErrNoCluster)
}
