package kafka

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/batch"
	"github.com/billetlog/billet/internal/kerr"
)

// dataBroker is a broker whose partitions are in memory.
type dataBroker struct {
	Broker
	topics map[string][]*dataPartition
	ids    map[TopicID]string
	failed error // of NewProducerID
}

// The nodes of a dataBroker. Node 9 is down.
const (
	dataSelf  = 7
	dataOther = 8
)

func (b *dataBroker) Self() int32       { return dataSelf }
func (b *dataBroker) ClusterID() string { return "cluster" }
func (b *dataBroker) Controller() int32 { return 9 }

func (b *dataBroker) Nodes(string) []Node {
	return []Node{{ID: dataSelf, Host: "seven", Port: 1}, {ID: dataOther, Host: "eight", Port: 2, Rack: "r"}}
}

func (b *dataBroker) Topics() (out []Topic) {
	for name := range b.topics {
		t, _ := b.Topic(name)
		out = append(out, t)
	}
	return out
}

func (b *dataBroker) Topic(name string) (Topic, bool) {
	partitions, ok := b.topics[name]
	t := Topic{Name: name}
	for id, n := range b.ids {
		if n == name {
			t.ID = id
		}
	}
	for _, p := range partitions {
		t.Partitions = append(t.Partitions, PartitionState{Leader: p.leader, Epoch: p.at.Epoch, Replicas: []int32{7, 8}, InSync: []int32{7}, Offline: []int32{8}})
	}
	return t, ok
}

func (b *dataBroker) TopicByID(id TopicID) (Topic, bool) {
	name, ok := b.ids[id]
	if !ok {
		return Topic{}, false
	}
	return b.Topic(name)
}

func (b *dataBroker) TopicName(id TopicID) (string, bool) {
	name, ok := b.ids[id]
	return name, ok
}

func (b *dataBroker) Partition(topic string, number int32) (Partition, error) {
	list := b.topics[topic]
	if number < 0 || int(number) >= len(list) {
		return nil, kerr.Errorf(kerr.UNKNOWN_TOPIC_OR_PARTITION, "none")
	}
	return list[number], nil
}

func (b *dataBroker) Leader(topic string, number int32) (node, epoch int32) {
	p := b.topics[topic][number]
	return p.leader, p.at.Epoch
}

func (b *dataBroker) NewProducerID(context.Context) (id int64, epoch int16, err error) {
	return 77, 0, b.failed
}

// dataPartition keeps its batches.
type dataPartition struct {
	Partition
	leader    int32
	internal  bool
	preferred int32
	checked   error // of Check

	mu      sync.Mutex
	at      Offsets
	batches []batch.Batch
	busy    int               // so many appends find no room
	hold    bool              // appends are answered by release
	held    []func(Appended)  // not answered yet
	failing error             // of appends
	subs    []chan<- struct{} // told of what comes
	appends chan struct{}     // told of every append that is held
	waits   chan struct{}     // told of everybody who wants to be told
}

// eventually waits for what a channel tells.
func eventually(t *testing.T, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
	case <-time.After(askTimeout):
		t.Fatal("it did not happen in time")
	}
}

// set changes how the partition is.
func (p *dataPartition) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// newDataPartition is led here, in epoch 5.
func newDataPartition() *dataPartition {
	return &dataPartition{leader: dataSelf, preferred: -1, at: Offsets{Epoch: 5, Leading: true}, appends: make(chan struct{}, 64), waits: make(chan struct{}, 64)}
}

func (p *dataPartition) Internal() bool                { return p.internal }
func (p *dataPartition) Check(batch.Batch) error       { return p.checked }
func (p *dataPartition) PreferredReplica(string) int32 { return p.preferred }
func (p *dataPartition) Size() int64                   { return 1000 }
func (p *dataPartition) EpochAt(offset int64) int32    { return int32(offset) }
func (p *dataPartition) EpochEnd(epoch int32) (largest int32, end int64, ok bool) {
	return epoch - 1, int64(epoch) * 10, epoch > 0
}
func (p *dataPartition) MaxTimestamp() (offset, timestamp int64, ok bool, err error) {
	return 3, 33, true, nil
}
func (p *dataPartition) NewCursor() Cursor { return dataCursor{p} }

func (p *dataPartition) OffsetForTime(ts int64) (offset, timestamp int64, ok bool, err error) {
	return ts * 2, ts + 1, ts < 100, nil
}

func (p *dataPartition) Offsets() Offsets {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.at
}

func (p *dataPartition) Append(b batch.Batch, acks int16, done func(Appended)) {
	p.mu.Lock()
	result := Appended{Offset: p.at.End, Timestamp: -1, Err: p.failing}
	switch {
	case p.busy > 0:
		p.busy--
		result.Err = ErrBusy
	case p.failing == nil:
		b := append(batch.Batch{}, b...)
		b.SetBaseOffset(p.at.End)
		p.addLocked(b)
	}
	hold := p.hold && result.Err == nil
	if hold {
		p.held = append(p.held, func(Appended) { done(result) })
		p.appends <- struct{}{}
	}
	p.mu.Unlock()
	if !hold {
		done(result)
	}
}

// add appends a batch that is stored already.
func (p *dataPartition) add(b batch.Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addLocked(b)
}

func (p *dataPartition) addLocked(b batch.Batch) {
	p.batches = append(p.batches, b)
	p.at.End = b.NextOffset()
	p.at.HighWatermark, p.at.LastStable = p.at.End, p.at.End
	p.tellLocked()
}

func (p *dataPartition) tellLocked() {
	for _, ch := range p.subs {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// release answers the appends that are held.
func (p *dataPartition) release() {
	p.mu.Lock()
	held := p.held
	p.held = nil
	p.mu.Unlock()
	for _, f := range held {
		f(Appended{})
	}
}

func (p *dataPartition) Notify(ch chan<- struct{}) (cancel func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.subs = append(p.subs, ch)
	select {
	case p.waits <- struct{}{}:
	default:
	}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for i := range p.subs {
			if p.subs[i] == ch {
				p.subs = append(p.subs[:i:i], p.subs[i+1:]...)
				return
			}
		}
	}
}

// subscribers counts who waits.
func (p *dataPartition) subscribers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.subs)
}

type dataCursor struct{ p *dataPartition }

func (c dataCursor) Close() {}

func (c dataCursor) Read(dst []byte, offset int64, maxBytes int) ([]byte, error) {
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	start := len(dst)
	for _, b := range c.p.batches {
		if b.NextOffset() > c.p.at.HighWatermark {
			break
		}
		if b.NextOffset() > offset && (len(dst) == start || len(dst)-start+len(b) <= maxBytes) {
			dst = append(dst, b...)
			offset = b.NextOffset()
		}
	}
	return dst, nil
}

// dataBatch is a batch of n records, each with a value of that size.
func dataBatch(t testing.TB, base int64, n, size int) batch.Batch {
	t.Helper()
	var b batch.Builder
	b.Reset(batch.BuilderOptions{})
	for range n {
		b.Append(1000, nil, bytes.Repeat([]byte{'v'}, size), nil)
	}
	out, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	out.SetBaseOffset(base)
	return out
}

// dataConn is a client's connection.
type dataConn struct {
	net.Conn
	t *testing.T
}

func dialData(t *testing.T, s *Server) *dataConn {
	t.Helper()
	c, err := net.Dial("tcp", s.listeners[0].Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(askTimeout)); err != nil {
		t.Fatal(err)
	}
	return &dataConn{c, t}
}

func (c *dataConn) send(request kmsg.Request, version int16) {
	c.t.Helper()
	request.SetVersion(version)
	f := binary.BigEndian.AppendUint16(make([]byte, 4), uint16(request.Key()))
	f = binary.BigEndian.AppendUint16(f, uint16(version))
	f = append(f, 0, 0, 0, 9, 0, 1, 'x')
	if request.IsFlexible() {
		f = append(f, 0)
	}
	f = request.AppendTo(f)
	binary.BigEndian.PutUint32(f, uint32(len(f)-4))
	if _, err := c.Write(f); err != nil {
		c.t.Fatal(err)
	}
}

// receive reads the answer to a request into response, which has its version.
func (c *dataConn) receive(response kmsg.Response) error {
	head := make([]byte, 8)
	if _, err := io.ReadFull(c, head); err != nil {
		return err
	}
	body := make([]byte, binary.BigEndian.Uint32(head)-4)
	if _, err := io.ReadFull(c, body); err != nil {
		return err
	}
	if response.IsFlexible() {
		body = body[1:]
	}
	return response.ReadFrom(body)
}
