package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// jetStreamCluster is three embedded servers with routes over TCP, one stream of
// three replicas a partition, and clients on pipes to each stream's leader.
type jetStreamCluster struct {
	jetStream // its server is nil; clients come from conn
	servers   []*server.Server
	leaders   []int // of each stream, as an index of servers
	direct    []jetstream.JetStream
}

func openJetStreamCluster(ctx context.Context, dir string, s shape) (system, error) {
	c := &jetStreamCluster{jetStream: jetStream{shape: s}}
	if err := c.open(ctx, dir); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *jetStreamCluster) open(ctx context.Context, dir string) error {
	routes, err := freeAddresses(clusterNodes)
	if err != nil {
		return err
	}
	for i := range clusterNodes {
		srv, err := server.NewServer(jetStreamNode(dir, routes, i, c.shape.Durable))
		if err != nil {
			return err
		}
		c.servers = append(c.servers, srv)
		go srv.Start()
	}
	for _, srv := range c.servers {
		if !srv.ReadyForConnections(time.Minute) {
			return errors.New("jetstream: server not ready")
		}
	}
	if err := c.waitMeta(ctx); err != nil {
		return err
	}
	if c.admin, err = c.clientOf(0); err != nil {
		return err
	}
	for p := range c.shape.Partitions {
		if err := c.createStream(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

const jetStreamName = "peer-" // and a number from 1

// jetStreamNode is server i of a cluster with the given addresses for routes.
func jetStreamNode(dir string, routes []string, i int, always bool) *server.Options {
	host, port, _ := strings.Cut(routes[i], ":")
	o := &server.Options{
		ServerName: jetStreamName + strconv.Itoa(i+1),
		Host:       "127.0.0.1", // routes wait until clients can connect
		Port:       server.RANDOM_PORT,
		NoLog:      true,
		NoSigs:     true,
		JetStream:  true,
		StoreDir:   filepath.Join(dir, fmt.Sprintf("node-%d", i+1)),
		SyncAlways: always,
		MaxPayload: 1 << 20,
		Routes:     server.RoutesFromStr("nats-route://" + strings.Join(routes, ",nats-route://")),
	}
	o.Cluster = server.ClusterOpts{Name: "peers", Host: host}
	_, _ = fmt.Sscan(port, &o.Cluster.Port)
	return o
}

func (c *jetStreamCluster) waitMeta(ctx context.Context) error {
	return poll(ctx, "jetstream: no leader of all servers", func() bool {
		for _, srv := range c.servers {
			if srv.Running() && srv.JetStreamIsLeader() && len(srv.JetStreamClusterPeers()) == len(c.servers) {
				return true
			}
		}
		return false
	})
}

func replicatedStream(partition int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: streamName(partition), Subjects: []string{subject(partition)}, Storage: jetstream.FileStorage, Replicas: clusterNodes,
	}
}

// makeStream makes a partition's stream, as soon as the servers are able to.
func makeStream(ctx context.Context, client jetstream.JetStream, partition int) (stream jetstream.Stream, err error) {
	return stream, poll(ctx, "jetstream: no stream", func() bool {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		stream, err = client.CreateStream(attempt, replicatedStream(partition))
		return err == nil
	})
}

// createStream makes a stream and waits until it has a leader and two replicas
// that are current.
func (c *jetStreamCluster) createStream(ctx context.Context, partition int) error {
	stream, err := makeStream(ctx, c.admin, partition)
	if err != nil {
		return err
	}
	return poll(ctx, "jetstream: stream not current", func() bool {
		leader, ok := c.leaderOf(ctx, stream)
		if ok {
			c.leaders = append(c.leaders, leader)
			var client jetstream.JetStream
			client, err := c.clientOf(leader)
			ok = err == nil
			c.direct = append(c.direct, client)
		}
		return ok
	})
}

// leaderOf returns who leads a stream whose replicas are all current.
func (c *jetStreamCluster) leaderOf(ctx context.Context, stream jetstream.Stream) (index int, ok bool) {
	info, err := stream.Info(ctx)
	if err != nil || info.Cluster == nil || len(info.Cluster.Replicas) != len(c.servers)-1 {
		return 0, false
	}
	for _, r := range info.Cluster.Replicas {
		if !r.Current || r.Offline {
			return 0, false
		}
	}
	for i, srv := range c.servers {
		if srv.Name() == info.Cluster.Leader {
			return i, true
		}
	}
	return 0, false
}

// clientOf returns a client with a connection of its own to server i.
func (c *jetStreamCluster) clientOf(i int) (jetstream.JetStream, error) {
	conn, err := nats.Connect("", nats.InProcessServer(c.servers[i]))
	if err != nil {
		return nil, err
	}
	c.conns = append(c.conns, conn)
	return c.clientOn(conn)
}

func (c *jetStreamCluster) Close() error {
	err := c.jetStream.Close()
	var wg sync.WaitGroup
	for _, srv := range c.servers {
		wg.Go(func() {
			srv.Shutdown()
			srv.WaitForShutdown()
		})
	}
	wg.Wait()
	return err
}

// Publish writes on the server that leads the partition's stream.
func (c *jetStreamCluster) Publish(ctx context.Context, partition int, value []byte) error {
	_, err := c.direct[partition].Publish(ctx, subject(partition), value)
	return err
}

// Ingest gives feeder i the stream i modulo the number of streams, on its leader.
func (c *jetStreamCluster) Ingest(ctx context.Context, l load, acked *atomic.Int64) error {
	clients := make([]jetstream.JetStream, l.feeders)
	for i := range clients {
		var err error
		if clients[i], err = c.clientOf(c.leaders[i%len(c.leaders)]); err != nil {
			return err
		}
	}
	errs := make([]error, l.feeders)
	var wg sync.WaitGroup
	for i, f := range l.start() {
		wg.Go(func() { errs[i] = c.ingestAsync(ctx, clients[i], subject(i%c.shape.Partitions), f, acked) })
	}
	wg.Wait()
	return errors.Join(append(errs, c.failed())...)
}
