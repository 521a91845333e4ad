package billet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/billetlog/billet/internal/history"
)

// harnessValue reads a value as ledgerValue wrote it.
func harnessValue(b []byte) history.Value {
	name, _, _ := strings.Cut(string(b), " ")
	writer, count, _ := strings.Cut(name, "/")
	n, err := strconv.ParseInt(count, 10, 64)
	if err != nil {
		n = -1
	}
	return history.Value{Writer: writer, N: n}
}

// startLoad makes a life produce and consume until it ends.
func (h *harness) startLoad(l *harnessLife, log *Log) {
	l.tasks.Go(func() { l.watchLeaders(log) })
	if err := h.awaitTopics(l.ctx, log); err != nil {
		return
	}
	l.tasks.Go(func() { l.produce(log) })
	l.tasks.Go(func() { l.consume(log, false) })
	l.tasks.Go(func() { l.consume(log, true) })
}

// awaitTopics waits until the node knows of the topics.
func (h *harness) awaitTopics(ctx context.Context, log *Log) error {
	for {
		_, wide := log.catalog.Topic(harnessWideTopic)
		_, narrow := log.catalog.Topic(harnessMainTopic)
		_, short := log.catalog.Topic(harnessShortTopic)
		if wide && narrow && short {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

const (
	harnessOpenRecords = 400                    // a producer's records without an answer
	harnessGap         = 15 * time.Millisecond  // between its lots
	harnessLookGap     = 20 * time.Millisecond  // between looks at who leads
	harnessRetryGap    = 50 * time.Millisecond  // after an error
	harnessImpatient   = 700 * time.Millisecond // the delivery timeout of some producers
)

// produce sends records of its own to all partitions, and notes what becomes of them.
func (l *harnessLife) produce(log *Log) {
	h := l.n.h
	writer := "p" + l.name
	config := ProducerConfig{Partitioner: ManualPartitioner}
	rng := rand.New(rand.NewPCG(h.seed, uint64(l.n.id)<<32+uint64(len(writer))))
	if rng.IntN(3) == 0 {
		config.DeliveryTimeout = harnessImpatient
	}
	p, err := log.NewProducer(config)
	if err != nil {
		return
	}
	var open atomic.Int64
	for ; l.ctx.Err() == nil; l.pause(harnessGap) {
		if h.paused.Load() || open.Load() > harnessOpenRecords {
			continue
		}
		for range 1 + rng.IntN(8) {
			r := Record{Topic: harnessMainTopic, Partition: int32(rng.IntN(harnessMainParts))}
			if rng.IntN(2) == 0 {
				r.Topic, r.Partition = harnessWideTopic, int32(rng.IntN(harnessWideParts))
			}
			size := 20 + rng.IntN(60)
			if rng.IntN(8) == 0 {
				r.Topic, r.Partition = harnessShortTopic, 0
				size = 500
			}
			if rng.IntN(100) == 0 {
				size = 70 << 10 // past the journal
			}
			v := h.history.Send(writer)
			r.Value = ledgerValue(v.Writer, int(v.N), size)
			open.Add(1)
			h.open.Add(1)
			err := p.Produce(l.ctx, r, func(at Offset, err error) {
				open.Add(-1)
				h.open.Add(-1)
				l.answered(v, r.Topic, at, err)
			})
			if err != nil {
				open.Add(-1)
				h.open.Add(-1)
				l.answered(v, r.Topic, Offset{}, err)
				l.pause(harnessRetryGap)
			}
		}
	}
}

// answered notes what the log said of a record. From a process that was killed nobody hears.
func (l *harnessLife) answered(v history.Value, topic string, at Offset, err error) {
	h := l.n.h
	switch {
	case l.dead.Load():
	case err == nil:
		h.history.Acknowledge(history.Partition{Topic: topic, Number: at.Partition}, at.Offset, v)
	case !errors.Is(err, ErrAmbiguous):
		h.history.Refuse(v, err)
		h.count(err)
	default:
		h.count(err)
	}
}

func (l *harnessLife) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.ctx.Done():
	}
}

// consume reads all partitions and notes what it gets. What a node's reader has read stays read when the node comes back.
func (l *harnessLife) consume(log *Log, local bool) {
	h, n := l.n.h, l.n
	name := fmt.Sprintf("leader reader %s", l.name)
	if local {
		name = fmt.Sprintf("local reader %s", l.name)
	}
	c, err := log.NewConsumer(harnessConsumerConfig(local))
	if err != nil {
		return
	}
	reader := h.history.Reader(name)
	if !local {
		for p, offset := range n.positions() {
			if c.Seek(p.Topic, p.Number, offset) == nil {
				reader.Seek(p, offset)
			}
		}
	}
	for l.ctx.Err() == nil && !l.dead.Load() {
		records, err := c.Poll(l.ctx)
		if l.dead.Load() {
			return
		}
		for i := range records {
			r := &records[i]
			p := history.Partition{Topic: r.Topic, Number: r.Partition}
			if r.Topic == harnessShortTopic && r.Offset > reader.Position(p) {
				reader.Seek(p, r.Offset) // what was between is deleted
			}
			reader.Read(p, r.Offset, harnessValue(r.Value))
			n.progress(p, r.Offset+1, local)
		}
		if !local { // a replica here may lag, and be replaced by an empty one
			l.noteHigh(log, reader)
		}
		if err == nil || isFinal(l.ctx, err) {
			continue
		}
		var out *OffsetError
		if errors.As(err, &out) && out.Topic == harnessShortTopic && out.Offset < out.Start {
			reader.Seek(history.Partition{Topic: out.Topic, Number: out.Partition}, out.Start)
		} else if errors.As(err, &out) {
			h.history.Violate("%s: %w", name, err)
		}
		h.note("%s: %v", name, err)
		l.pause(harnessRetryGap)
		for _, a := range c.Assignment() {
			_ = c.Seek(a.Topic, a.Partition, reader.Position(history.Partition{Topic: a.Topic, Number: a.Partition}))
		}
	}
}

// noteHigh notes the high watermarks that the node tells, which never fall, whoever leads.
func (l *harnessLife) noteHigh(log *Log, reader *history.Reader) {
	for _, topic := range []string{harnessMainTopic, harnessWideTopic, harnessShortTopic} {
		t, _ := log.catalog.Topic(topic)
		for n := range int32(t.Partitions) {
			part, err := log.catalog.Partition(topic, n)
			if err != nil || !part.Known() {
				continue
			}
			if high := part.HighWatermark(); !l.dead.Load() {
				reader.High(history.Partition{Topic: topic, Number: n}, high)
			}
		}
	}
}

// watchLeaders notes which partitions the node leads, and in which epochs.
func (l *harnessLife) watchLeaders(log *Log) {
	h := l.n.h
	node := log.harnessNode()
	for ; l.ctx.Err() == nil; l.pause(harnessLookGap) {
		for _, t := range node.Controller.Topics() {
			for i := range t.Partitions {
				h.seeShard(t.Partitions[i].Shard)
				p, err := node.Controller.Partition(t.Name, int32(i))
				if err != nil {
					continue
				}
				if epoch := p.Epoch(); epoch != 0 && !l.dead.Load() {
					id := p.Spec().TopicID // a topic made anew begins with the first epoch again
					h.history.Lead(history.Partition{Topic: fmt.Sprintf("%s (%x)", t.Name, id), Number: int32(i)}, epoch, l.n.id)
				}
			}
		}
	}
}

func harnessConsumerConfig(local bool) ConsumerConfig {
	return ConsumerConfig{Topics: []string{harnessMainTopic, harnessWideTopic, harnessShortTopic}, ReadLocal: local}
}
