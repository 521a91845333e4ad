package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/billetlog/billet/group"
	"github.com/billetlog/billet/replication"
	"github.com/billetlog/billet/transport/kafka"
)

// Options say what a broker is made of.
type Options struct {
	// Node is the node, Router its way to all partitions. Both outlive the broker.
	Node   *replication.Node
	Router *replication.Router
	// Self is the node's id.
	Self int32
	// Dir is the node's directory, Rack where it stands.
	Dir, Rack string
	// TopicDefaults are settings for topics that clients make and that do not say
	// otherwise.
	TopicDefaults map[string]string
	// Logger gets what an operator may want to know. Default: nobody.
	Logger *slog.Logger
	// Groups are the settings of the coordinators. NewID is filled in.
	Groups group.Options
	// OffsetsPartitions is how many partitions OffsetsTopic gets when it is made, which
	// is when the first group is. Default 16.
	OffsetsPartitions int
}

// Broker is a node as Kafka's clients see it. Its methods are safe for concurrent use.
type Broker struct {
	opts       Options
	node       *replication.Node
	controller *replication.Controller
	router     *replication.Router
	logger     *slog.Logger

	groups *groups

	endpoints []replication.Endpoint // of this node; set before anybody is served

	life    context.Context // ends with Close
	endLife context.CancelFunc
	changes sync.WaitGroup // under way, also those that nobody waits for any more
}

// Open makes the broker of a node.
func Open(opts Options) (*Broker, error) {
	if opts.Node == nil || opts.Router == nil {
		return nil, fmt.Errorf("broker: Options.Node or Router is nil: give those of an open node")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	b := &Broker{opts: opts, node: opts.Node, controller: opts.Node.Controller, router: opts.Router, logger: opts.Logger}
	var err error
	if b.groups, err = newGroups(&opts); err != nil {
		return nil, err
	}
	b.life, b.endLife = context.WithCancel(context.Background())
	b.node.Handle(callCoordinate, b.serveForwarded)
	return b, nil
}

// Close ends what the broker runs. Nobody calls it any more.
func (b *Broker) Close() {
	b.node.Handle(callCoordinate, nil)
	b.groups.close()
	b.endLife()
	b.changes.Wait()
}

// Self is this node's id.
func (b *Broker) Self() int32 { return b.opts.Self }

// ClusterID is the cluster's.
func (b *Broker) ClusterID() string { return b.node.ClusterID() }

// Announce tells the cluster where clients reach this node. Should the cluster not listen
// now, it is told later.
func (b *Broker) Announce(ctx context.Context, endpoints []kafka.Endpoint) error {
	list := make([]replication.Endpoint, 0, len(endpoints))
	for _, e := range endpoints {
		list = append(list, replication.Endpoint{Name: e.Name, Host: e.Host, Port: e.Port})
	}
	b.endpoints = list
	ctx, cancel := context.WithTimeout(ctx, announceTimeout)
	defer cancel()
	err := b.controller.SetEndpoints(ctx, list)
	if errors.Is(err, replication.ErrInvalidConfig) {
		return fmt.Errorf("the addresses for clients: %w", err)
	}
	if err != nil {
		b.logger.Warn("the cluster is told later where clients reach this node", "err", err)
	}
	return nil
}

// announceTimeout bounds how long the cluster is waited for.
const announceTimeout = 5 * time.Second

// Nodes lists the nodes that have a listener of that name and are not known to be down.
func (b *Broker) Nodes(listener string) []kafka.Node {
	var out []kafka.Node
	self := false
	nodes := b.controller.Nodes()
	cutOff := b.isCutOff(nodes)
	for _, n := range nodes {
		endpoints := n.Endpoints
		switch {
		case n.ID == b.opts.Self:
			self, endpoints = true, b.endpoints
		case !cutOff && !b.node.Reachable(n.ID):
			continue
		}
		out = appendNode(out, n.ID, n.Rack, endpoints, listener)
	}
	if !self { // nobody has been told of this node yet
		out = appendNode(out, b.opts.Self, "", b.endpoints, listener)
	}
	return out
}

// isCutOff says whether this node reaches no majority of the nodes. Then it is this node
// that is away: a client must be told of the others, or it would ask nobody else again.
func (b *Broker) isCutOff(nodes []replication.NodeState) bool {
	reached := 0
	for _, n := range nodes {
		if b.node.Reachable(n.ID) {
			reached++
		}
	}
	return 2*reached <= len(nodes)
}

func appendNode(out []kafka.Node, id int32, rack string, endpoints []replication.Endpoint, listener string) []kafka.Node {
	for _, e := range endpoints {
		if e.Name == listener {
			return append(out, kafka.Node{ID: id, Host: e.Host, Port: e.Port, Rack: rack})
		}
	}
	return out
}

// Controller is the node that decides on topics. Every node takes requests for it.
func (b *Broker) Controller() int32 {
	if node, _ := b.controller.MetadataLeader(); node != 0 {
		return node
	}
	return b.opts.Self
}

// NewProducerID returns an id that no producer of the cluster ever had.
func (b *Broker) NewProducerID(ctx context.Context) (id int64, epoch int16, err error) {
	id, epoch, err = b.controller.NewProducerID(ctx)
	return id, epoch, wireError(err)
}
