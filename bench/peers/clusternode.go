package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/billetlog/billet"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// nodeSpec is one node of a cluster of three.
type nodeSpec struct {
	System    string   // billet or jetstream
	Dir       string   // of the cluster
	Addresses []string // one a node for other nodes, then one a node for JetStream's clients
	Index     int
	Durable   bool
}

// member is a node of a cluster. Of system it has Close only.
type member interface {
	system
	// create makes partitions of three replicas with a record in each.
	create(ctx context.Context, partitions int) error
}

func (n *nodeSpec) open() (member, error) {
	if n.System == "jetstream" {
		return n.openJetStream()
	}
	log, err := billet.Open(nodeConfig(n.Dir, n.Addresses[:clusterNodes], n.Index))
	if err != nil {
		return nil, err
	}
	return billetMember{log: log, durable: n.Durable}, nil
}

type billetMember struct {
	system
	log     *billet.Log
	durable bool
}

func (m billetMember) Close() error { return m.log.Close() }

func (m billetMember) create(ctx context.Context, partitions int) error {
	if err := m.log.CreateTopic(ctx, clusterTopic(partitions, m.durable)); err != nil {
		return err
	}
	for p := range partitions {
		if _, err := m.log.ProduceBatch(ctx, billetTopic, int32(p), []billet.Record{{Value: make([]byte, kib)}}); err != nil {
			return err
		}
	}
	return nil
}

type jetStreamMember struct {
	system
	srv *server.Server
}

func (n *nodeSpec) clientAddress(i int) string { return n.Addresses[clusterNodes+i] }

func (n *nodeSpec) openJetStream() (member, error) {
	o := jetStreamNode(n.Dir, n.Addresses[:clusterNodes], n.Index, n.Durable)
	_, port, _ := strings.Cut(n.clientAddress(n.Index), ":")
	if _, err := fmt.Sscan(port, &o.Port); err != nil {
		return nil, err
	}
	srv, err := server.NewServer(o)
	if err != nil {
		return nil, err
	}
	go srv.Start()
	if !srv.ReadyForConnections(time.Minute) {
		return nil, errors.New("jetstream: server not ready")
	}
	return jetStreamMember{srv: srv}, nil
}

// Close shuts the server down, which hands its leaderships over first.
func (m jetStreamMember) Close() error {
	m.srv.Shutdown()
	m.srv.WaitForShutdown()
	return nil
}

func (m jetStreamMember) create(ctx context.Context, partitions int) error {
	conn, err := nats.Connect("", nats.InProcessServer(m.srv))
	if err != nil {
		return err
	}
	defer conn.Close()
	client, err := jetstream.New(conn, jetstream.WithDefaultTimeout(jetstreamTimeout))
	if err != nil {
		return err
	}
	for p := range partitions {
		if _, err := makeStream(ctx, client, p); err != nil {
			return err
		}
	}
	for p := range partitions {
		if err := poll(ctx, "jetstream: no leader", func() bool {
			_, err := client.Publish(ctx, subject(p), make([]byte, kib))
			return err == nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// nodes are the processes of a cluster. They end with this one.
type nodes struct {
	spec     nodeSpec
	children []*child
	opened   chan error // that of the processes, all together
}

// startNodes starts processes for the first n nodes of three. They open when all
// three are there: see join and wait.
func startNodes(ctx context.Context, spec nodeSpec, n int) (*nodes, error) {
	var err error
	if spec.Addresses, err = freeAddresses(2 * clusterNodes); err != nil {
		return nil, err
	}
	all := &nodes{spec: spec, children: make([]*child, n), opened: make(chan error, 1)}
	go func() { all.opened <- all.each(func(i int, _ *child) error { return all.start(ctx, i) }) }()
	return all, nil
}

// join opens a node in this process and waits for the others.
func (n *nodes) join(spec *nodeSpec) (member, error) {
	m, err := spec.open()
	if err := errors.Join(err, n.wait()); err != nil {
		if m != nil {
			err = errors.Join(err, m.Close())
		}
		return nil, err
	}
	return m, nil
}

// wait waits until the processes' nodes are open.
func (n *nodes) wait() error {
	err := <-n.opened
	n.opened <- err
	return err
}

// start starts the process of node i, which has none, and waits until it is open.
func (n *nodes) start(ctx context.Context, i int) (err error) {
	spec := n.spec
	spec.Index = i
	if n.children[i], err = spawn(ctx, childSpec{Node: &spec}); err != nil {
		return err
	}
	return n.children[i].expect("ready")
}

// kill ends all processes.
func (n *nodes) kill() {
	for _, c := range n.children {
		if c != nil {
			_ = c.command.Process.Kill() // those that wait for another one, too
		}
	}
	_ = n.wait()
	for _, c := range n.children {
		if c != nil {
			c.kill()
		}
	}
}

// each does the same to all processes at once.
func (n *nodes) each(do func(i int, c *child) error) error {
	errs := make([]error, len(n.children))
	var wg sync.WaitGroup
	for i, c := range n.children {
		wg.Go(func() { errs[i] = do(i, c) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
