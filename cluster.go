package billet

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/billetlog/billet/replication"
	"github.com/billetlog/billet/transport"
)

// Cluster says how a node reaches others and which cluster it belongs to. The zero
// value is a node without a network, a cluster of one. A directory that is alone
// can be opened with a network later, and others can join it then: its records
// stay where they are.
type Cluster struct {
	// Listen is the address at which other nodes reach this one, host:port.
	// Everything between nodes goes over this one port. Default "": no network.
	Listen string
	// Advertise is what other nodes are told instead of Listen, as behind a
	// translation of addresses. It may change between two Opens. Default: Listen.
	Advertise string
	// Join are addresses of nodes of the cluster, at least one of which is up.
	// A new directory joins that cluster and never forms one of its own; Open
	// waits for it until OpenTimeout. A directory that belongs to a cluster uses
	// them to find the others when they moved.
	Join []string
	// Bootstrap are the ids of nodes that form a cluster together, the same list
	// on each, with Join leading to them. Open waits until all of them were seen.
	// If one of them says that the cluster exists, it is joined. Default empty: a
	// new directory without Join is a cluster of one.
	Bootstrap []int32
	// Name keeps the nodes of different clusters apart when addresses lead from
	// one to the other. Default "billet"; 1 to 255 bytes.
	Name string
	// GossipKey encrypts gossip, which carries ids and addresses: 16, 24 or 32
	// bytes, the same on all nodes. Default nil: not encrypted. With mutual TLS
	// it is not needed.
	GossipKey []byte
	// Rack is where the node stands. Replicas of a partition are spread over
	// racks. Default "".
	Rack string
	// Transport carries the bytes between nodes. Default transport.TCP: neither
	// encrypted nor authenticated, for a network that is trusted. See
	// transport.NewMutualTLS.
	Transport transport.Transport
	// CheckIdentity says whether a certificate may speak for a node id. Default:
	// the certificate must carry the name "node-N", N being the id. Without a
	// transport that authenticates it is not called.
	CheckIdentity func(id int32, who transport.Identity) error
	// CatchupBytesPerSecond bounds what this node sends to replicas that are new
	// or far behind. Default 0: no bound; otherwise at least 64 KiB/s.
	CatchupBytesPerSecond int64
	// ReplicaLagTimeMax is after how long without being caught up a replica is
	// no longer in sync, Kafka's replica.lag.time.max.ms. Default 10 s; 1 s to 1 h.
	ReplicaLagTimeMax time.Duration
}

// Defaults and bounds of Cluster.
const (
	defaultClusterName = "billet"
	maxClusterName     = 255
	minCatchupRate     = 64 << 10
	defaultReplicaLag  = replication.DefaultReplicaLagTimeMax
	minReplicaLag      = time.Second
	maxReplicaLag      = replication.MaxReplicaLagTimeMax
)

func (c *Cluster) ensureDefaults() {
	setDefault(&c.Name, defaultClusterName)
	setDefault(&c.ReplicaLagTimeMax, defaultReplicaLag)
	c.Join, c.Bootstrap, c.GossipKey = slices.Clone(c.Join), slices.Clone(c.Bootstrap), slices.Clone(c.GossipKey)
	if c.Transport == nil {
		c.Transport = transport.TCP{}
	}
	if c.CheckIdentity == nil {
		c.CheckIdentity = transport.NameCheck(func(id int32) string { return fmt.Sprintf("node-%d", id) })
	}
}

func (c *Cluster) validate(id int32) error {
	switch {
	case c.Listen == "" && len(c.Join)+len(c.Bootstrap) > 0:
		return invalidField("Cluster.Listen", `""`, "an address, when there is Join or Bootstrap")
	case len(c.Name) > maxClusterName:
		return invalidField("Cluster.Name", c.Name, "at most %d bytes", maxClusterName)
	case len(c.Bootstrap) > 0 && !slices.Contains(c.Bootstrap, id):
		return invalidField("Cluster.Bootstrap", c.Bootstrap, "a list with this node's NodeID, %d", id)
	case len(c.Bootstrap) > 1 && len(c.Join) == 0:
		return invalidField("Cluster.Join", "[]", "addresses that lead to the nodes of Bootstrap")
	case c.CatchupBytesPerSecond != 0 && c.CatchupBytesPerSecond < minCatchupRate:
		return invalidField("Cluster.CatchupBytesPerSecond", c.CatchupBytesPerSecond, "0, or at least %d", minCatchupRate)
	case c.ReplicaLagTimeMax < minReplicaLag || c.ReplicaLagTimeMax > maxReplicaLag:
		return invalidField("Cluster.ReplicaLagTimeMax", c.ReplicaLagTimeMax, "%v to %v", minReplicaLag, maxReplicaLag)
	}
	switch len(c.GossipKey) {
	case 0, 16, 24, 32:
		return nil
	}
	return invalidField("Cluster.GossipKey", fmt.Sprintf("%d bytes", len(c.GossipKey)), "16, 24 or 32 bytes")
}

// network is what the layer below is told, nil for a node without one.
func (c *Cluster) network(p pace) *replication.NetworkConfig {
	if c.Listen == "" {
		return nil
	}
	return &replication.NetworkConfig{
		Transport: c.Transport, ListenAddress: c.Listen, AdvertiseAddress: c.Advertise, Join: c.Join, Bootstrap: c.Bootstrap,
		Label: c.Name, GossipKey: c.GossipKey, Rack: c.Rack, CheckIdentity: c.CheckIdentity,
		PingInterval: p.ping, DeadPeerTimeout: p.deadPeer, GossipInterval: p.gossip,
	}
}

// NodeInfo describes a node of the cluster.
type NodeInfo struct {
	ID      int32
	Address string // where it was last; "" for a node without a network
	Rack    string
	// Reachable says whether this node has a connection to it now.
	Reachable bool
	// Draining says that its replicas move away; Drained, that none is left.
	Draining, Drained bool
}

// clusterControl is what the root needs from below besides topics.
type clusterControl interface {
	Nodes() []replication.NodeState
	Reachable(id int32) bool
	Drained(id int32) bool
	DrainNode(ctx context.Context, id int32) error
	ActivateNode(ctx context.Context, id int32) error
	RemoveNode(ctx context.Context, id int32) error
	SetReplicas(ctx context.Context, topic string, replicas int) error
	Reassign(ctx context.Context, topic string, partition int32, nodes []int32) error
	RecoverPartition(ctx context.Context, topic string, partition int32) (replication.Recovered, error)
	ClusterID() string
}

// ClusterID returns the cluster's id, 32 hexadecimal digits.
func (l *Log) ClusterID() string { return l.cluster.ClusterID() }

// Nodes lists the cluster's nodes by id, as this node knows them.
func (l *Log) Nodes(ctx context.Context) ([]NodeInfo, error) {
	if err := l.check(ctx); err != nil {
		return nil, err
	}
	var out []NodeInfo
	for _, n := range l.cluster.Nodes() {
		draining := n.Mode == replication.NodeDraining
		out = append(out, NodeInfo{ID: n.ID, Address: n.Address, Rack: n.Rack, Reachable: l.cluster.Reachable(n.ID),
			Draining: draining, Drained: draining && l.cluster.Drained(n.ID)})
	}
	return out, nil
}

// DrainNode moves all replicas and leaderships off a node while producers and
// consumers go on, and gives it no new ones. It returns when that is decided: see
// NodeInfo.Drained. Errors: ErrUnknownNode, ErrNotEnoughNodes when a partition
// would have nowhere to go, ErrAmbiguous.
func (l *Log) DrainNode(ctx context.Context, id int32) error {
	return l.onNode(ctx, "drain", id, l.cluster.DrainNode)
}

// ActivateNode takes a drain back. Errors as of DrainNode.
func (l *Log) ActivateNode(ctx context.Context, id int32) error {
	return l.onNode(ctx, "activate", id, l.cluster.ActivateNode)
}

// RemoveNode takes a node out of the cluster for good. Drain it first: what it
// still has is made anew from the other replicas elsewhere, as soon as there are
// nodes for it, and what it alone has is lost with it. Its directory is refused from
// then on. A node that died and will not come back is removed in the same way. Errors
// as of DrainNode.
func (l *Log) RemoveNode(ctx context.Context, id int32) error {
	return l.onNode(ctx, "remove", id, l.cluster.RemoveNode)
}

func (l *Log) onNode(ctx context.Context, what string, id int32, do func(context.Context, int32) error) error {
	if err := l.check(ctx); err != nil {
		return err
	}
	if err := do(ctx, id); err != nil {
		return fmt.Errorf("billet: %s node %d: %w", what, id, wrapSeam(err))
	}
	return nil
}

// Reassign moves a partition to the given nodes while producers and consumers go
// on; the first is the preferred leader. It returns when that is decided. Errors:
// ErrUnknownTopic, ErrUnknownNode, ErrInvalidConfig, ErrAmbiguous.
func (l *Log) Reassign(ctx context.Context, topic string, partition int32, nodes []int32) error {
	if err := l.check(ctx); err != nil {
		return err
	}
	if len(nodes) == 0 {
		return fmt.Errorf("billet: reassign %s-%d: %w: name at least one node", topic, partition, ErrInvalidConfig)
	}
	if err := l.cluster.Reassign(ctx, topic, partition, nodes); err != nil {
		return fmt.Errorf("billet: reassign %s-%d: %w", topic, partition, wrapSeam(err))
	}
	return nil
}
