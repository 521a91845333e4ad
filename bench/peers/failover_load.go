package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/billetlog/billet"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// paceLanes sends records to every lane at its pace until ctx ends.
func paceLanes(ctx context.Context, lanes []*lane, send func(lane, number int)) {
	ticks := time.NewTicker(laneInterval)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
		for i, l := range lanes {
			send(i, l.next())
		}
	}
}

func newLanes(n int) []*lane {
	lanes := make([]*lane, n)
	for i := range lanes {
		lanes[i] = &lane{}
	}
	return lanes
}

func numbered(number int) []byte {
	return binary.LittleEndian.AppendUint64(make([]byte, 0, kib), uint64(number))[:kib]
}

func numberOf(value []byte) int { return int(binary.LittleEndian.Uint64(value)) }

// billetLoad loads eight partitions through one Producer.
type billetLoad struct {
	log      *billet.Log
	producer *billet.Producer
	all      []*lane
	stop     context.CancelFunc
	running  sync.WaitGroup
}

func openBilletLoad(ctx context.Context, n *nodes) (load underLoad, err error) {
	own := n.spec
	own.Index = clusterNodes - 1
	node, err := n.join(&own)
	if err != nil {
		return nil, err
	}
	b := &billetLoad{log: node.(billetMember).log, all: newLanes(clusterPartitions), stop: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	if err := b.log.CreateTopic(ctx, clusterTopic(len(b.all), n.spec.Durable)); err != nil {
		return nil, err
	}
	if b.producer, err = b.log.NewProducer(billet.ProducerConfig{Partitioner: billet.ManualPartitioner}); err != nil {
		return nil, err
	}
	ctx, b.stop = context.WithCancel(ctx)
	b.running.Go(func() {
		paceLanes(ctx, b.all, func(p, number int) {
			record := billet.Record{Topic: billetTopic, Partition: int32(p), Value: numbered(number)}
			done := func(o billet.Offset, err error) { b.all[p].answer(number, o.Offset, err) }
			if err := b.producer.Produce(ctx, record, done); err != nil && ctx.Err() == nil {
				b.all[p].answer(number, 0, err)
			}
		})
	})
	return b, nil
}

func (b *billetLoad) lanes() []*lane { return b.all }

func (b *billetLoad) leads(ctx context.Context) (leaders []int, err error) {
	return leaders, poll(ctx, "the replicas are not well", func() bool {
		info, err := b.log.Topic(ctx, billetTopic)
		if err != nil {
			return false
		}
		leaders = leaders[:0]
		elsewhere := false
		for _, p := range info.Partitions {
			for _, r := range p.Replicas {
				if !r.InSync {
					return false
				}
			}
			leaders = append(leaders, int(p.Leader)-1)
			elsewhere = elsewhere || p.Leader < clusterNodes
		}
		return elsewhere
	})
}

func (b *billetLoad) verify(ctx context.Context) (err error) {
	b.stop()
	b.running.Wait()
	if err := b.producer.Flush(ctx); err != nil {
		return err
	}
	for p, l := range b.all {
		if err := b.verifyLane(ctx, int32(p), l); err != nil {
			return fmt.Errorf("partition %d: %w", p, err)
		}
	}
	return nil
}

func (b *billetLoad) verifyLane(ctx context.Context, p int32, l *lane) (err error) {
	info, err := b.log.Topic(ctx, billetTopic)
	if err != nil {
		return err
	}
	consumer, err := b.log.NewConsumer(billet.ConsumerConfig{Assign: map[string][]int32{billetTopic: {p}}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, consumer.Close()) }()
	var numbers []int
	var offsets []int64
	for next := int64(0); next < info.Partitions[p].HighWatermark; {
		records, err := consumer.Poll(ctx)
		if err != nil {
			return err
		}
		for i := range records {
			numbers, offsets = append(numbers, numberOf(records[i].Value)), append(offsets, records[i].Offset)
			next = records[i].Offset + 1
		}
	}
	return l.check(numbers, offsets)
}

func (b *billetLoad) Close() error {
	b.stop()
	b.running.Wait()
	return b.log.Close()
}

// jetStreamLoad loads one stream through the server in this process. It hears
// acknowledgements in an inbox of its own, since the client's Publish would give
// up on a record after a while.
type jetStreamLoad struct {
	node    jetStreamMember
	conn    *nats.Conn
	stream  jetstream.Stream
	all     []*lane
	stop    context.CancelFunc
	running sync.WaitGroup
}

func openJetStreamLoad(ctx context.Context, n *nodes) (load underLoad, err error) {
	own := n.spec
	own.Index = clusterNodes - 1
	node, err := n.join(&own)
	if err != nil {
		return nil, err
	}
	j := &jetStreamLoad{node: node.(jetStreamMember), all: newLanes(1), stop: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, j.Close())
		}
	}()
	if j.conn, err = nats.Connect("", nats.InProcessServer(j.node.srv)); err != nil {
		return nil, err
	}
	client, err := jetstream.New(j.conn, jetstream.WithDefaultTimeout(jetstreamTimeout))
	if err != nil {
		return nil, err
	}
	if j.stream, err = makeStream(ctx, client, 0); err != nil {
		return nil, err
	}
	inbox := nats.NewInbox()
	if _, err := j.conn.Subscribe(inbox+".*", j.hear); err != nil {
		return nil, err
	}
	ctx, j.stop = context.WithCancel(ctx)
	j.running.Go(func() {
		paceLanes(ctx, j.all, func(_, number int) {
			if err := j.conn.PublishRequest(subject(0), inbox+"."+strconv.Itoa(number), numbered(number)); err != nil {
				j.all[0].answer(number, 0, err)
			}
		})
	})
	return j, nil
}

// hear takes an acknowledgement. A refusal is none, and no failure either.
func (j *jetStreamLoad) hear(m *nats.Msg) {
	var ack struct {
		Seq   int64
		Error json.RawMessage
	}
	number, err := strconv.Atoi(m.Subject[strings.LastIndexByte(m.Subject, '.')+1:])
	if err != nil || json.Unmarshal(m.Data, &ack) != nil || ack.Seq == 0 {
		return
	}
	j.all[0].answer(number, ack.Seq, nil)
}

func (j *jetStreamLoad) lanes() []*lane { return j.all }

func (j *jetStreamLoad) leads(ctx context.Context) (leaders []int, err error) {
	return leaders, poll(ctx, "the replicas are not well", func() bool {
		ask, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		info, err := j.stream.Info(ask)
		if err != nil || info.Cluster == nil || len(info.Cluster.Replicas) != clusterNodes-1 {
			return false
		}
		for _, r := range info.Cluster.Replicas {
			if !r.Current || r.Offline {
				return false
			}
		}
		leader, err := strconv.Atoi(strings.TrimPrefix(info.Cluster.Leader, jetStreamName))
		if err != nil {
			return false
		}
		leaders = []int{leader - 1}
		if leader == clusterNodes { // it leads here: another one shall
			_, _ = j.conn.RequestWithContext(ask, "$JS.API.STREAM.LEADER.STEPDOWN."+streamName(0), nil)
			return false
		}
		return true
	})
}

// verify checks nothing: without the client's retries some records are lost on
// their way, and what was acknowledged is not ours to judge.
func (j *jetStreamLoad) verify(context.Context) error { return nil }

func (j *jetStreamLoad) Close() error {
	j.stop()
	j.running.Wait()
	if j.conn != nil {
		j.conn.Close()
	}
	return j.node.Close()
}
