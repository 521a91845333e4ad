package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/billetlog/billet"
)

const (
	clusterNodes  = 3
	clusterPoll   = 20 * time.Millisecond
	clusterStride = 64 // records in a row that a node's feeder gives to one partition
)

// ingestForwarded is billet's way to ingest through one node, which forwards what
// others lead.
const ingestForwarded = "forwarded"

// billetCluster is three nodes in this process that reach each other over TCP,
// with one topic of three replicas.
type billetCluster struct {
	shape   shape
	nodes   []*billet.Log
	leaders []int // of each partition, as an index of nodes
	onEvent func(billet.Event)
}

// freeAddresses returns addresses of this machine at which nobody listens.
func freeAddresses(n int) (list []string, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		list = append(list, l.Addr().String())
	}
	return list, nil
}

// nodeConfig is that of node i of a cluster at the given addresses.
func nodeConfig(dir string, addresses []string, i int) billet.Config {
	ids := make([]int32, len(addresses))
	for j := range ids {
		ids[j] = int32(j + 1)
	}
	return billet.Config{
		Dir: filepath.Join(dir, fmt.Sprintf("node-%d", i+1)), NodeID: ids[i],
		Cluster: billet.Cluster{Listen: addresses[i], Join: addresses, Bootstrap: ids},
	}
}

func openBilletCluster(ctx context.Context, dir string, s shape) (system, error) {
	c := &billetCluster{shape: s, nodes: make([]*billet.Log, clusterNodes)}
	if err := c.open(ctx, dir); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (c *billetCluster) open(ctx context.Context, dir string) error {
	addresses, err := freeAddresses(len(c.nodes))
	if err != nil {
		return err
	}
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for i := range c.nodes { // each waits for the others
		wg.Go(func() {
			config := nodeConfig(dir, addresses, i)
			config.OnEvent = c.onEvent
			c.nodes[i], errs[i] = billet.Open(config)
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if c.shape.Partitions == 0 {
		return nil
	}
	return c.createTopic(ctx)
}

func clusterTopic(partitions int, durable bool) billet.Topic {
	topic := billet.Topic{Name: billetTopic, Partitions: partitions, Replicas: clusterNodes, Fsync: billet.FsyncInterval}
	if durable {
		topic.Fsync = billet.FsyncCommit
	}
	return topic
}

// createTopic makes the topic and waits until all nodes know each partition's leader.
func (c *billetCluster) createTopic(ctx context.Context) error {
	topic := clusterTopic(c.shape.Partitions, c.shape.Durable)
	if c.shape.Replicas > 0 {
		topic.Replicas = c.shape.Replicas
	}
	if err := c.nodes[0].CreateTopic(ctx, topic); err != nil {
		return err
	}
	c.leaders = make([]int, c.shape.Partitions)
	for p := range c.leaders {
		var err error
		if c.leaders[p], err = c.leader(ctx, int32(p)); err != nil {
			return err
		}
	}
	return nil
}

// leader waits until every node knows who leads a partition and returns that.
func (c *billetCluster) leader(ctx context.Context, partition int32) (index int, err error) {
	return index, poll(ctx, fmt.Sprintf("partition %d has no leader", partition), func() bool {
		agreed := int32(0)
		for _, log := range c.nodes {
			info, err := log.Topic(ctx, billetTopic)
			if err != nil || len(info.Partitions) <= int(partition) {
				return false
			}
			leader := info.Partitions[partition].Leader
			if leader < 1 || (agreed > 0 && leader != agreed) {
				return false
			}
			agreed = leader
		}
		index = int(agreed) - 1
		return true
	})
}

// poll calls done until it is true.
func poll(ctx context.Context, what string, done func() bool) error {
	for !done() {
		select {
		case <-time.After(clusterPoll):
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, ctx.Err())
		}
	}
	return nil
}

func (c *billetCluster) Close() error {
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for i, log := range c.nodes {
		if log != nil {
			wg.Go(func() { errs[i] = log.Close() })
		}
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Publish writes on the node that leads the partition.
func (c *billetCluster) Publish(ctx context.Context, partition int, value []byte) error {
	_, err := c.nodes[c.leaders[partition]].ProduceBatch(ctx, billetTopic, int32(partition), []billet.Record{{Value: value}})
	return err
}

func (c *billetCluster) Count(ctx context.Context) (records int64, err error) {
	for p, i := range c.leaders {
		info, err := c.nodes[i].Topic(ctx, billetTopic)
		if err != nil {
			return 0, err
		}
		records += info.Partitions[p].HighWatermark - info.Partitions[p].Start
	}
	return records, nil
}

// Ingest uses one Producer on each node for the partitions that it leads, for
// which the load has a feeder for each node; or all feeders use a Producer each on
// the first node, for all partitions.
func (c *billetCluster) Ingest(ctx context.Context, l load, acked *atomic.Int64) error {
	errs := make([]error, l.feeders)
	var wg sync.WaitGroup
	feeders := l.start()
	for i, f := range feeders {
		log, partitions := c.nodes[0], []int32(nil)
		for p, leader := range c.leaders {
			if leader == i || c.shape.Ingest == ingestForwarded {
				partitions = append(partitions, int32(p))
			}
		}
		if c.shape.Ingest != ingestForwarded {
			log = c.nodes[i]
		}
		if len(partitions) > 0 {
			wg.Go(func() { errs[i] = c.ingestOn(ctx, log, partitions, f, acked) })
		}
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if acked.Load() != given(feeders) {
		return fmt.Errorf("%d records given, %d acknowledged", given(feeders), acked.Load())
	}
	return nil
}

// ingestOn writes a feeder's records through one node to the given partitions,
// and looks at every result: in each partition offsets follow each other.
func (c *billetCluster) ingestOn(ctx context.Context, log *billet.Log, partitions []int32, f *feeder, acked *atomic.Int64) error {
	producer, err := log.NewProducer(billet.ProducerConfig{BatchBytes: c.shape.BatchBytes, Partitioner: billet.ManualPartitioner})
	if err != nil {
		return err
	}
	var failure atomic.Pointer[error]
	last := make([]int64, c.shape.Partitions)
	done := func(o billet.Offset, err error) {
		if err == nil && last[o.Partition] > 0 && o.Offset != last[o.Partition]+1 {
			err = fmt.Errorf("partition %d: offset %d follows %d", o.Partition, o.Offset, last[o.Partition])
		}
		if err != nil {
			failure.CompareAndSwap(nil, &err)
			return
		}
		last[o.Partition] = o.Offset
		acked.Add(1)
	}
	for {
		value, ok := f.next()
		if !ok {
			break
		}
		p := partitions[f.given/clusterStride%int64(len(partitions))]
		if err := producer.Produce(ctx, billet.Record{Topic: billetTopic, Partition: p, Value: value}, done); err != nil {
			return errors.Join(err, producer.Close())
		}
	}
	err = errors.Join(producer.Flush(ctx), producer.Close())
	if first := failure.Load(); first != nil {
		err = errors.Join(err, *first)
	}
	return err
}

func (c *billetCluster) Consume(context.Context, func([]byte) error) error {
	return errors.ErrUnsupported
}
func (c *billetCluster) Send(context.Context, []byte) error { return errors.ErrUnsupported }
func (c *billetCluster) Sent(context.Context) error         { return errors.ErrUnsupported }
