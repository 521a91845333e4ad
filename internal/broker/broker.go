package broker

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

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
	// TopicDefaults are settings for topics that clients make and that do not say
	// otherwise.
	TopicDefaults map[string]string
	// Logger gets what an operator may want to know. Default: nobody.
	Logger *slog.Logger
}

// Broker is a node as Kafka's clients see it. Its methods are safe for concurrent use.
type Broker struct {
	opts       Options
	node       *replication.Node
	controller *replication.Controller
	router     *replication.Router
	logger     *slog.Logger

	endpoints []kafka.Endpoint

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
	b.life, b.endLife = context.WithCancel(context.Background())
	return b, nil
}

// Announce tells the cluster where clients reach this node.
func (b *Broker) Announce(_ context.Context, endpoints []kafka.Endpoint) error {
	b.endpoints = endpoints
	return nil
}

// Close ends what the broker runs. Nobody calls it any more.
func (b *Broker) Close() {
	b.endLife()
	b.changes.Wait()
}

// Self is this node's id.
func (b *Broker) Self() int32 { return b.opts.Self }

// ClusterID is the cluster's.
func (b *Broker) ClusterID() string { return b.node.ClusterID() }

// Nodes lists the nodes that have a listener of that name.
func (b *Broker) Nodes(listener string) []kafka.Node {
	var out []kafka.Node
	for _, e := range b.endpoints {
		if e.Name == listener {
			out = append(out, kafka.Node{ID: b.opts.Self, Host: e.Host, Port: e.Port})
		}
	}
	return out
}

// Controller is the node to which clients send what concerns the cluster.
func (b *Broker) Controller() int32 { return b.opts.Self }

// NewProducerID returns an id that no producer of the cluster ever had.
func (b *Broker) NewProducerID(ctx context.Context) (id int64, epoch int16, err error) {
	id, epoch, err = b.controller.NewProducerID(ctx)
	return id, epoch, wireError(err)
}
