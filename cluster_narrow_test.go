package billet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/billetlog/billet/transport"
)

// A narrow way to one node: what is sent in this test would take it minutes.
const (
	narrowWay   = 256 << 10 // bytes a second
	narrowFlood = 48 << 20
	narrowMax   = 10 * time.Second // for what is little
)

// TestClusterNarrow has more written than the way to one node can take: the node still learns what happens in the cluster, and opens again.
func TestClusterNarrow(t *testing.T) {
	c := newCutCluster(t, 3, 3)
	ctx, cancel := context.WithTimeout(context.Background(), settleMax)
	defer cancel()
	leader := c.leader(0)
	decides, _ := c.client.log.harnessNode().Controller.MetadataLeader()
	id := c.others(leader, decides)[0]
	other := c.others(leader, id)[0]
	c.fatal("create", c.nodes[leader].log.CreateTopic(ctx, Topic{Name: "flood", Partitions: 2, Replicas: 3}))
	slowLinks(transport.Link{BytesPerSecond: narrowWay})(c, id)
	var sent atomic.Int64
	var flood sync.WaitGroup
	end, stop := context.WithCancel(ctx)
	defer flood.Wait()
	defer stop()
	flood.Go(func() { floodTopic(end, t, c.nodes[other].log, &sent) })
	longest := time.Duration(0)
	for i := 0; i < 3 || sent.Load() < narrowFlood; i++ {
		began := time.Now()
		name := fmt.Sprint("news", i)
		c.fatal("create", createAgain(ctx, c.nodes[other].log, Topic{Name: name, Partitions: 1, Replicas: 1}))
		c.await(ctx, func() error { return c.knows(id, name) })
		longest = max(longest, time.Since(began))
	}
	c.noteWithin("the news of topics are there", longest)
	began := time.Now()
	reopen := c.restart(id)
	reopen()
	c.noteWithin("it is closed and open again", time.Since(began))
	stop()
	c.heal()
	flood.Wait()
	c.settle(true)
}

// createAgain creates a topic, and asks again where the leadership of the metadata moved meanwhile, as it may on a machine that does much else.
func createAgain(ctx context.Context, log *Log, topic Topic) error {
	for again := false; ; again = true {
		err := log.CreateTopic(ctx, topic)
		if again && errors.Is(err, ErrTopicExists) {
			return nil
		}
		if err == nil || !Retriable(err) || ctx.Err() != nil {
			return err
		}
	}
}

// knows says whether a node itself has read that there is a topic.
func (c *cutCluster) knows(id int32, name string) error {
	for _, t := range c.nodes[id].log.harnessNode().Controller.Topics() {
		if t.Name == name {
			return nil
		}
	}
	return fmt.Errorf("node %d does not know of %s", id, name)
}

// noteWithin fails the test when something took too long.
func (c *cutCluster) noteWithin(what string, took time.Duration) {
	c.t.Helper()
	c.note("%s after %v", what, took.Round(time.Millisecond))
	if took > narrowMax {
		c.t.Errorf("%s after %v only", what, took)
	}
}

// floodTopic writes large records, some at a time, until ctx ends.
func floodTopic(ctx context.Context, t *testing.T, log *Log, sent *atomic.Int64) {
	p, err := log.NewProducer(ProducerConfig{BufferBytes: 8 << 20})
	if err != nil {
		t.Error(err)
		return
	}
	defer func() { _ = p.Close() }()
	value := make([]byte, 64<<10)
	for ctx.Err() == nil {
		err := p.Produce(ctx, Record{Topic: "flood", Value: value}, func(_ Offset, err error) {
			if err == nil {
				sent.Add(int64(len(value)))
			}
		})
		if err != nil && ctx.Err() == nil {
			t.Error(err)
			return
		}
	}
}
