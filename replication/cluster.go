package replication

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/billetlog/billet/transport"
)

// NodeConfig says how a node is opened.
type NodeConfig struct {
	// Host is how it works. Node, Address and Rack are filled in by OpenNode.
	Host HostConfig
	// ID is the node's id, from 1.
	ID int32
	// Network is how it reaches other nodes; nil: it is alone.
	Network *NetworkConfig
}

// NetworkConfig says how a node reaches others and which cluster it belongs to.
type NetworkConfig struct {
	// Transport carries the bytes.
	Transport transport.Transport
	// ListenAddress is where this node listens, AdvertiseAddress where others reach it. Default of the second: where it listens.
	ListenAddress, AdvertiseAddress string
	// Join are addresses of nodes of the cluster. A directory without a cluster joins one and never forms one.
	Join []string
	// Bootstrap are the ids of the nodes that form a cluster together, the same list on each.
	Bootstrap []int32
	// Label keeps the gossip of different clusters apart, GossipKey (16, 24 or 32 bytes) encrypts it.
	Label     string
	GossipKey []byte
	// Rack is where the node stands: replicas are spread over racks.
	Rack string
	// CheckIdentity is transport.Options.CheckIdentity.
	CheckIdentity func(id int32, who transport.Identity) error
	// PingInterval and DeadPeerTimeout are those of transport.Options: after how long a silence a ping is sent, and a peer is taken for lost and
	// replaced where it leads. Default: DefaultPingInterval and DefaultDeadPeerTimeout.
	PingInterval, DeadPeerTimeout time.Duration
	// GossipInterval is how often news of nodes are sent on. Probes and exchanges of all that is known follow it. Default: 200 ms.
	GossipInterval time.Duration

	timings discoveryTimings
}

// Node is an open node: its host and its controller, and its way to the other nodes when it has one.
type Node struct {
	Host       *Host
	Controller *Controller

	lostMetadata uint64 // its replica of the metadata that is damaged, while another one is asked for

	cfg        NodeConfig
	identity   NodeIdentity
	peers      *peers
	discovery  atomic.Pointer[discovery]
	controller atomic.Pointer[Controller] // the same as Controller, for gossip's goroutines
	formed     atomic.Bool                // all that form the cluster have registered
	news       chan struct{}              // has room for one: gossip told of something
}

func (c *NetworkConfig) ensureDefaults() {
	if c.DeadPeerTimeout == 0 {
		c.DeadPeerTimeout = DefaultDeadPeerTimeout
	}
	if c.PingInterval == 0 {
		c.PingInterval = min(DefaultPingInterval, c.DeadPeerTimeout/2)
	}
}

// OpenNode opens the directory. A directory without a cluster gets one first: its own, one that it joins, or one that it forms together with
// others, whichever the configuration says; that takes until ctx ends at most. After an error nothing is left running.
func OpenNode(ctx context.Context, cfg NodeConfig) (n *Node, err error) {
	cfg.Host.ensureDefaults()
	n = &Node{cfg: cfg, news: make(chan struct{}, 1)}
	if n.identity, err = LoadNode(cfg.Host.FS, cfg.Host.Dir, cfg.ID); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), snapshotTimeout)
			defer cancel()
			err = errors.Join(err, n.Close(closing))
			n = nil
		}
	}()
	if err := n.countOpen(); err != nil {
		return n, err
	}
	if cfg.Network != nil {
		cfg.Network.ensureDefaults()
		if err := n.startNetwork(); err != nil {
			return n, err
		}
	}
	if n.identity.Cluster == [16]byte{} {
		err = n.findCluster(ctx)
	} else if cfg.Network != nil && len(cfg.Network.Join) > 0 {
		err = n.checkCluster(ctx)
	}
	if err != nil {
		return n, err
	}
	return n, n.run(ctx)
}

// countOpen notes one more life of the directory. The first number comes from the clock, so that the id's next directory has a higher one.
func (n *Node) countOpen() error {
	if n.identity.Opens == 0 {
		n.identity.Opens = uint64(max(n.cfg.Host.Now().UnixNano(), 0))
	}
	n.identity.Opens++
	if n.cfg.Network == nil && n.identity.Cluster == [16]byte{} {
		if err := drawID(&n.identity.Cluster); err != nil {
			return err
		}
	}
	return n.save()
}

// opensLeap is by how much a directory that the others take for an older one of the same id advances its count: a clock is seldom further behind.
const opensLeap = uint64(24 * time.Hour)

// leap makes the next open one that the others do not take for an earlier life of the id: the clock was behind when the count began.
func (n *Node) leap(refused error) error {
	n.identity.Opens += opensLeap
	err := fmt.Errorf("replication: node %d was taken for an earlier one with its id, since the clock went back: open it again: %w", n.cfg.ID, refused)
	return errors.Join(err, n.save())
}

func (n *Node) save() error { return SaveNode(n.cfg.Host.FS, n.cfg.Host.Dir, n.identity) }

// startNetwork starts the transport and the gossip over it.
func (n *Node) startNetwork() error {
	net := n.cfg.Network
	var err error
	n.peers, err = newPeers(transport.Options{
		ID: n.cfg.ID, ClusterID: n.identity.network(), Incarnation: n.identity.Opens, Transport: net.Transport, ListenAddress: net.ListenAddress,
		CheckIdentity: net.CheckIdentity, OnStream: n.onStream, PingInterval: net.PingInterval, DeadPeerTimeout: net.DeadPeerTimeout,
	})
	if err != nil {
		return err
	}
	n.peers.directory = n.identity.Dir
	if net.AdvertiseAddress == "" {
		net.AdvertiseAddress = n.peers.node.Addr().String()
	}
	if net.timings == (discoveryTimings{}) {
		net.timings = discoveryTimings{}.atPace(net.GossipInterval)
	}
	d, err := newDiscovery(discoveryConfig{
		self: n.self(), label: net.Label, key: net.GossipKey, seeds: net.Join, dial: n.peers.node.OpenStream,
		registered: n.registered, onChange: n.onPeer, logger: n.cfg.Host.Logger, timings: net.timings,
	})
	if err != nil {
		return err
	}
	n.discovery.Store(d)
	return nil
}

func (n *Node) onStream(_ transport.Peer, conn net.Conn) {
	if d := n.discovery.Load(); d != nil {
		d.handle(conn)
	}
}

// self is what gossip tells of this node.
func (n *Node) self() peerInfo {
	p := peerInfo{
		Node: n.cfg.ID, Phase: phaseFresh, Dir: n.identity.Dir, Cluster: n.identity.Cluster, Addr: n.cfg.Network.AdvertiseAddress, Rack: n.cfg.Network.Rack,
		Generation: n.identity.Generation,
	}
	switch {
	case p.Cluster != [16]byte{} && (len(n.identity.Forming) == 0 || n.formed.Load()):
		p.Phase = phaseFormed
	case p.Cluster != [16]byte{}:
		p.Phase = phaseForming
	}
	return p
}

// onPeer takes a peer's address from gossip. That it is gone is for the transport to find out.
func (n *Node) onPeer(p peerInfo, alive bool) {
	mine := n.peers.node.Cluster()
	if alive && p.Node != n.cfg.ID && (networkID(p.Cluster, p.Generation) == mine || p.Cluster == [16]byte{}) && mine != (transport.ClusterID{}) {
		n.peers.moved(p.Node, p.Addr, true)
	}
	select {
	case n.news <- struct{}{}:
	default:
	}
}

// registered are the addresses that the metadata has of the other nodes.
func (n *Node) registered() (out []string) {
	if c := n.controller.Load(); c != nil {
		for _, m := range c.Nodes() {
			if m.ID != n.cfg.ID && m.Address != "" {
				out = append(out, m.Address)
			}
		}
	}
	return out
}

const (
	clusterLook  = 200 * time.Millisecond // between looks at gossip while the node belongs to no cluster
	clusterCheck = time.Second            // for a first peer to say which cluster the addresses to join lead to
)

// findCluster gives a fresh directory its cluster.
func (n *Node) findCluster(ctx context.Context) error {
	net := n.cfg.Network
	if len(net.Join) == 0 && len(net.Bootstrap) == 0 {
		return n.adopt(func() error { return drawID(&n.identity.Cluster) })
	}
	if len(net.Bootstrap) > 0 && !slices.Contains(net.Bootstrap, n.cfg.ID) {
		return fmt.Errorf("%w: node %d is not in its own list of nodes that form the cluster: %v", ErrInvalidConfig, n.cfg.ID, net.Bootstrap)
	}
	timer := time.NewTicker(clusterLook)
	defer timer.Stop()
	for {
		found, err := n.look(n.discovery.Load().members())
		if found || err != nil {
			return err
		}
		select {
		case <-n.news:
		case <-timer.C:
		case <-ctx.Done():
			return fmt.Errorf("replication: node %d found no cluster: %w: %s", n.cfg.ID, context.Cause(ctx), n.missing())
		}
	}
}

// checkCluster makes sure that the addresses to join do not lead to another cluster than the directory's: whoever started a node alone before it was to
// join would otherwise have two clusters and not know. Nodes that cannot be reached now are no reason to wait long.
func (n *Node) checkCluster(ctx context.Context) error {
	patience := time.NewTimer(clusterCheck)
	defer patience.Stop()
	timer := time.NewTicker(clusterLook / 10)
	defer timer.Stop()
	for {
		var other [16]byte
		for _, p := range n.discovery.Load().members() {
			if p.Dir == n.identity.Dir || p.Cluster == [16]byte{} {
				continue
			}
			if p.Cluster == n.identity.Cluster && p.Generation > n.identity.Generation {
				return fmt.Errorf("%w: the cluster was recovered on another node without this one: let the directory follow it, or start with an empty one", ErrForeignDir)
			}
			if p.Cluster == n.identity.Cluster {
				return nil
			}
			other = p.Cluster
		}
		if other != [16]byte{} {
			return fmt.Errorf("%w: the directory belongs to cluster %x and %v leads to cluster %x: to join that one, start with an empty directory",
				ErrForeignDir, n.identity.Cluster, n.cfg.Network.Join, other)
		}
		select {
		case <-n.news:
		case <-timer.C:
		case <-patience.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// missing says what findCluster waits for.
func (n *Node) missing() string {
	if len(n.cfg.Network.Bootstrap) == 0 {
		return fmt.Sprintf("no node of one was reached through %v: is one up there?", n.cfg.Network.Join)
	}
	var absent []int32
	for _, id := range n.cfg.Network.Bootstrap {
		if !slices.ContainsFunc(n.discovery.Load().members(), func(p peerInfo) bool { return p.Node == id }) {
			absent = append(absent, id)
		}
	}
	return fmt.Sprintf("nodes %v, which are to form it, were not seen: start them, with Join leading to each other", absent)
}

// look decides from what gossip tells whether there is a cluster to be joined, or one to be formed now.
func (n *Node) look(members []peerInfo) (found bool, err error) {
	var cluster [16]byte
	var generation uint64
	var forming bool
	seen := map[int32]peerInfo{}
	for _, p := range members {
		// At one address only one is up: the other one was there before it lost its directory, and is not forgotten yet.
		if other, ok := seen[p.Node]; ok && other.Dir != p.Dir && other.Addr != p.Addr {
			return false, fmt.Errorf("%w: two nodes with the id %d are up: give each its own NodeID", ErrNodeExists, p.Node)
		}
		seen[p.Node] = p
		if p.Cluster == [16]byte{} {
			continue
		}
		if cluster != [16]byte{} && cluster != p.Cluster {
			return false, fmt.Errorf("%w: the addresses to join lead to two clusters, %x and %x: name nodes of one, or give each cluster its own label", ErrForeignDir, cluster, p.Cluster)
		}
		cluster, forming = p.Cluster, forming || p.Phase == phaseForming
		generation = max(generation, p.Generation) // who is of an older one was left behind by a recovery
	}
	list := n.cfg.Network.Bootstrap
	switch {
	case cluster != [16]byte{} && (!forming || len(list) == 0):
		return true, n.adopt(func() error {
			n.identity.Cluster, n.identity.Generation = cluster, generation
			return nil
		})
	case cluster != [16]byte{}:
		return true, n.adopt(func() error { n.identity.Cluster, n.identity.Forming = cluster, slices.Clone(list); return nil })
	case len(list) == 0 || n.cfg.ID != slices.Min(list):
		return false, nil
	}
	for _, id := range list {
		if _, ok := seen[id]; !ok {
			return false, nil
		}
	}
	return true, n.adopt(func() error {
		n.identity.Forming = slices.Clone(list)
		return drawID(&n.identity.Cluster)
	})
}

// adopt makes the node a member of a cluster, durably, and tells the others.
func (n *Node) adopt(change func() error) error {
	if err := change(); err != nil {
		return err
	}
	if err := n.save(); err != nil {
		return err
	}
	if n.peers == nil {
		return nil
	}
	if err := n.peers.node.SetCluster(n.identity.network()); err != nil {
		return fmt.Errorf("replication: %w", err)
	}
	return n.announce()
}

// announce spreads what this node is now, and looks at the others anew.
func (n *Node) announce() error {
	d := n.discovery.Load()
	if d == nil {
		return nil
	}
	if err := d.update(n.self()); err != nil {
		return err
	}
	for _, p := range d.members() {
		n.onPeer(p, true)
	}
	return nil
}

// run starts the host and the controller.
func (n *Node) run(ctx context.Context) (err error) {
	cfg := n.cfg.Host
	cfg.Node, cfg.peers = n.identity, n.peers
	if n.cfg.Network != nil {
		cfg.Address, cfg.Rack = n.cfg.Network.AdvertiseAddress, n.cfg.Network.Rack
		if err := n.announce(); err != nil {
			return err
		}
	}
	if n.Host, err = OpenHost(cfg); err != nil {
		return err
	}
	if !n.identity.Formed && n.joins() {
		if err := n.join(ctx); err != nil {
			return err
		}
	}
	if n.Controller, err = OpenController(ctx, n.Host); errors.Is(err, errMetadataDamaged) {
		n.Controller, err = n.replaceMetadata(ctx, err)
	}
	if err != nil {
		return err
	}
	n.controller.Store(n.Controller)
	n.identity = n.Host.cfg.Node
	if n.cfg.Network == nil {
		return nil
	}
	if len(n.identity.Forming) > 0 {
		n.Host.spawn(n.finishForming)
		return nil
	}
	return n.announce()
}

// finishForming waits until all nodes that form the cluster have registered. Until then one of them that is fresh has not been there yet and becomes an
// initial member; from then on it has lost what it had, and joins as a new one.
func (n *Node) finishForming() {
	c, identity := n.Controller, n.identity
	err := c.await(c.ctx, func() bool {
		return !slices.ContainsFunc(identity.Forming, func(id int32) bool { _, ok := c.mu.nodes[id]; return !ok })
	})
	if err != nil {
		return // the next open goes on
	}
	identity.Forming = nil
	if err = SaveNode(n.cfg.Host.FS, n.cfg.Host.Dir, identity); err == nil {
		n.formed.Store(true)
		err = n.announce()
	}
	if err != nil && c.ctx.Err() == nil {
		n.cfg.Host.Logger.Warn("that the cluster is formed was not noted; the next open does it", "err", err)
	}
}

// joins says whether the node gets its metadata from a cluster that exists.
func (n *Node) joins() bool {
	return n.cfg.Network != nil && len(n.identity.Forming) == 0 && len(n.cfg.Network.Join)+len(n.cfg.Network.Bootstrap) > 0
}

// join registers the node with the cluster and makes the files of the replica of the metadata that it is given.
func (n *Node) join(ctx context.Context) error {
	h := n.Host
	q := h.registration()
	q.Lost = n.lostMetadata
	var last error
	timer := time.NewTicker(clusterLook)
	defer timer.Stop()
	for {
		for _, p := range n.discovery.Load().members() {
			if p.Node == n.cfg.ID || networkID(p.Cluster, p.Generation) != n.identity.network() {
				continue
			}
			var a decideAnswer
			err := h.callJSON(ctx, p.Node, requestDecide, decideRequest{Name: "register", Args: mustJSON(q)}, &a)
			if err == nil && a.Err != "" {
				err = errorOf(p.Node, a.Code, a.Err)
			}
			if errors.Is(err, ErrNodeExists) || errors.Is(err, ErrForeignDir) {
				return err
			}
			if errors.Is(err, transport.ErrDuplicateNode) {
				return n.leap(err)
			}
			var given registered
			if err == nil {
				err = unmarshalJSON(a.Body, &given)
			}
			if err == nil && given.Replica != 0 {
				return n.joined(given.Replica)
			}
			last = cmpError(err, last)
		}
		select {
		case <-timer.C:
		case <-n.news:
		case <-ctx.Done():
			return fmt.Errorf("replication: node %d could not join: %w: %w", n.cfg.ID, context.Cause(ctx), cmpError(last, errors.New("its replica of the metadata is being made ready")))
		}
	}
}

// joined makes the files of this node's replica of the metadata; from then on it counts as formed.
func (n *Node) joined(replica uint64) error {
	spec := metadataSpec(replica)
	spec.Join, spec.Learner = true, true
	if err := n.Host.PrepareReplica(spec); err != nil {
		return err
	}
	n.identity.Formed = true
	if err := n.save(); err != nil {
		return err
	}
	n.Host.cfg.Node.Formed = true // the rest others read meanwhile
	return nil
}

// Close stops everything, in the opposite order. It is bounded by ctx.
func (n *Node) Close(ctx context.Context) error {
	var errs []error
	if n.Controller != nil {
		n.Controller.Close()
	}
	if n.Host != nil {
		errs = append(errs, n.Host.Close(ctx))
	}
	if d := n.discovery.Load(); d != nil {
		errs = append(errs, d.close(ctx))
	}
	if n.peers != nil {
		errs = append(errs, n.peers.node.Close())
	}
	return errors.Join(errs...)
}

// Nodes and the calls below are the controller's.
func (n *Node) Nodes() []NodeState { return n.Controller.Nodes() }

// Reachable says whether a connection to a node stands; this node itself always is.
func (n *Node) Reachable(id int32) bool { return n.Host.reachable(id) }

// Alive says whether a node belongs to the cluster and can be reached; this node itself always can.
func (n *Node) Alive(id int32) bool { return n.Controller.knows(id) && n.Host.reachable(id) }

// Traffic is how many bytes went to and came from other nodes.
func (n *Node) Traffic() (sent, received uint64) {
	if n.peers == nil {
		return 0, 0
	}
	s := n.peers.node.Stats()
	return s.BytesSent, s.BytesReceived
}

// ClusterID is the cluster's id as text.
func (n *Node) ClusterID() string { return n.identity.ClusterID() }

// Drained says whether a node has no replica of a topic any more.
func (n *Node) Drained(id int32) bool { return n.Controller.Drained(id) }

// DrainNode is Controller.DrainNode.
func (n *Node) DrainNode(ctx context.Context, id int32) error { return n.Controller.DrainNode(ctx, id) }

// ActivateNode is Controller.ActivateNode.
func (n *Node) ActivateNode(ctx context.Context, id int32) error {
	return n.Controller.ActivateNode(ctx, id)
}

// RemoveNode is Controller.RemoveNode.
func (n *Node) RemoveNode(ctx context.Context, id int32) error {
	return n.Controller.RemoveNode(ctx, id)
}

// SetReplicas is Controller.SetReplicas.
func (n *Node) SetReplicas(ctx context.Context, topic string, replicas int) error {
	return n.Controller.SetReplicas(ctx, topic, replicas)
}

// Reassign is Controller.Reassign.
func (n *Node) Reassign(ctx context.Context, topic string, partition int32, nodes []int32) error {
	return n.Controller.Reassign(ctx, topic, partition, nodes)
}

// RecoverPartition is Controller.RecoverPartition.
func (n *Node) RecoverPartition(ctx context.Context, topic string, partition int32) (Recovered, error) {
	return n.Controller.RecoverPartition(ctx, topic, partition)
}
