package billet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	wireMetadataAge = 100 * time.Millisecond
	wireMetadataMax = time.Second           // after which clients see new partitions by themselves
	wireGap         = 10 * time.Millisecond // between two records of a producer
)

// wireLedger is what clients sent and were told.
type wireLedger struct {
	mu     sync.Mutex
	began  time.Time
	values map[int32]map[int64]string // by partition and offset, as anybody learned
	acked  map[string]bool
	sent   map[string]bool
	made   atomic.Int32       // how often the topic was made anew; changes with mu held
	fresh  atomic.Bool        // it is there
	ids    map[[16]byte]int32 // of the topics, with what made was when they were made
	mixed  bool               // what members tell who come in no order is of several topics
	silent bool               // a coordinator was silent for longer than a session
	faults bool               // one fault follows another, so that clients may give up what they try again for a session
	struck time.Time          // when a node was last killed, stopped or not open
	groups map[string]*wireGroup
	codes  map[string]int // what the clients were told, and how often
	notes  []string
	failed []string
}

// wireGroup is what the members of a group have read together.
type wireGroup struct {
	seen map[string]bool
	next map[int32]int64
}

func newWireLedger() *wireLedger {
	return &wireLedger{began: time.Now(), values: map[int32]map[int64]string{}, acked: map[string]bool{}, sent: map[string]bool{},
		groups: map[string]*wireGroup{}, ids: map[[16]byte]int32{}, codes: map[string]int{}}
}

func (l *wireLedger) note(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.notes = append(l.notes, fmt.Sprintf("%8v ", time.Since(l.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
}

// strikes notes that something is the matter with a node now.
func (l *wireLedger) strikes() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.struck = time.Now()
}

// failedMax bounds the failures that are told.
const failedMax = 20

func (l *wireLedger) fail(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failLocked(format, args...)
}

func (l *wireLedger) failLocked(format string, args ...any) {
	if len(l.failed) < failedMax {
		l.failed = append(l.failed, fmt.Sprintf("%8v ", time.Since(l.began).Round(time.Millisecond))+fmt.Sprintf(format, args...))
	}
}

// report fails the test for what failed, and tells what there was.
func (l *wireLedger) report(t *testing.T) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.failed {
		t.Error(f)
	}
	if t.Failed() {
		for _, n := range l.notes {
			t.Log(n)
		}
	}
	t.Logf("%d records acknowledged, clients were told: %v", len(l.acked), l.codes)
}

// which numbers the topics that had the same name.
func (l *wireLedger) which(id [16]byte) int32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.ids[id]; !ok {
		l.ids[id] = l.made.Load()
	}
	return l.ids[id]
}

func (l *wireLedger) send(value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent[value] = true
}

func (l *wireLedger) acknowledge(partition int32, offset int64, value string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made.Load() > partition/wireAnew {
		return
	}
	l.acked[value] = true
	l.learnLocked("an acknowledgement", partition, offset, value)
}

// learnLocked takes what is at an offset, which all must learn alike.
func (l *wireLedger) learnLocked(how string, partition int32, offset int64, value string) {
	at := l.values[partition]
	if at == nil {
		at = map[int64]string{}
		l.values[partition] = at
	}
	if before, ok := at[offset]; ok && before != value {
		l.failLocked("%s: at %d of partition %d is %s, it was %s", how, offset, partition, value, before)
	}
	at[offset] = value
	if !l.sent[value] {
		l.failLocked("%s: %s at %d of partition %d was never sent", how, value, offset, partition)
	}
}

// read notes what a member of a group got. Nothing may be left out where what members
// tell comes in the order in which they got it.
func (l *wireLedger) read(group string, partition int32, offset int64, value string, ordered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.groupLocked(group)
	if ordered || !l.mixed {
		l.learnLocked("group "+group, partition, offset, value)
	}
	if next := g.next[partition]; ordered && offset > next {
		l.failLocked("group %s: at %d of partition %d, %d to %d were not read", group, offset, partition, next, offset-1)
	}
	g.next[partition] = max(g.next[partition], offset+1)
	g.seen[value] = true
}

func (l *wireLedger) groupLocked(name string) *wireGroup {
	g := l.groups[name]
	if g == nil {
		g = &wireGroup{seen: map[string]bool{}, next: map[int32]int64{}}
		l.groups[name] = g
	}
	return g
}

// lag tells how many acknowledged records a group has not read.
func (l *wireLedger) lag(group string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	g, n := l.groupLocked(group), 0
	for value := range l.acked {
		if !g.seen[value] {
			n++
		}
	}
	if n > 0 {
		return fmt.Errorf("group %s has not read %d of %d records; it is at %v", group, n, len(l.acked), g.next)
	}
	return nil
}

// normal are the codes that are not retriable, and that every client of a healthy
// cluster is told as well.
var normal = []error{kerr.RebalanceInProgress, kerr.MemberIDRequired}

// evicted are those that a member may be told who was not heard for a session, as when
// it waits for the answer of a coordinator that is stopped.
var evicted = []error{kerr.UnknownMemberID, kerr.IllegalGeneration, kerr.FencedMemberEpoch, kerr.StaleMemberEpoch}

// told counts an error of a client. Only what passes by itself is right.
func (l *wireLedger) told(client, what string, err error) {
	var code *kerr.Error
	if !errors.As(err, &code) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.codes[code.Message]++
	if !code.Retriable && !slices.Contains(normal, error(code)) && !(l.silent && slices.Contains(evicted, error(code))) {
		l.failLocked("%s: %s: %v", client, what, err)
	}
}

// wireClient is a Kafka client, and its own logger.
type wireClient struct {
	*kgo.Client
	rig      *wireRig
	name     string
	ctx      context.Context
	stop     context.CancelFunc
	tasks    sync.WaitGroup
	produces bool
	rest     atomic.Bool  // it sends nothing
	open     atomic.Int64 // records without an answer
	moves    atomic.Int64 // partitions that it got or lost
	lost     atomic.Bool  // it was told that the topic is gone
	since    atomic.Int32 // how often the topic was made anew since the client first knew it
	wrote    atomic.Int32 // since, of the last record that was acknowledged
}

// Level makes it log all: the codes are in it.
func (c *wireClient) Level() kgo.LogLevel { return kgo.LogLevelDebug }

// Log takes the errors out of what the client logs.
func (c *wireClient) Log(level kgo.LogLevel, message string, keyvals ...any) {
	for _, v := range keyvals {
		if err, ok := v.(error); ok {
			c.rig.told(c.name, message, err)
		}
	}
	if level <= kgo.LogLevelWarn {
		c.rig.note("%s: %s %v", c.name, message, keyvals)
	}
}

// OnGroupManageError hears of what ended a session of the group.
func (c *wireClient) OnGroupManageError(err error) {
	c.rig.mu.Lock()
	defer c.rig.mu.Unlock()
	code := (*kerr.Error)(nil)
	tired := errors.As(err, &code) && code.Retriable && c.rig.faults && time.Since(c.rig.struck) < wireSession
	if code != nil && !c.rig.silent && !tired {
		c.rig.failLocked("%s: its session in the group ended: %v", c.name, err)
	}
}

func (r *wireRig) newClient(name string, opts ...kgo.Opt) *wireClient {
	r.t.Helper()
	c := &wireClient{rig: r, name: name}
	c.ctx, c.stop = context.WithCancel(r.t.Context())
	var err error
	c.Client, err = kgo.NewClient(append([]kgo.Opt{r.seeds(), kgo.Dialer(dialAgain), kgo.MetadataMinAge(wireMetadataAge), kgo.MetadataMaxAge(wireMetadataMax), kgo.WithLogger(c), kgo.WithHooks(c), kgo.ClientID(name)}, opts...)...)
	if err != nil {
		r.t.Fatal(err)
	}
	r.clients = append(r.clients, c)
	return c
}

// closeClients ends all of them. Members leave their groups.
func (r *wireRig) closeClients() {
	for _, c := range r.clients {
		c.stop()
		c.tasks.Wait()
		c.CloseAllowingRebalance()
	}
	r.clients = nil
	if r.client != nil {
		r.client.Close()
	}
}

// produce starts a producer that sends to all partitions until it is told to rest.
func (r *wireRig) produce(name string, opts ...kgo.Opt) *wireClient {
	c := r.newClient(name, append([]kgo.Opt{kgo.DefaultProduceTopic(wireTopic), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.ProducerLinger(0)}, opts...)...)
	c.produces = true
	c.tasks.Go(func() {
		for n := 0; pauseFor(c.ctx, wireGap); n++ {
			c.open.Add(1) // before it looks whether it rests
			if c.rest.Load() || c.open.Load() > loadOpenMax {
				c.open.Add(-1)
				continue
			}
			c.produceOne(&kgo.Record{Value: fmt.Appendf(nil, "%s/%d", name, n)})
		}
	})
	return c
}

func (c *wireClient) produceOne(record *kgo.Record) {
	c.rig.send(string(record.Value))
	since := c.since.Load()
	c.Produce(c.ctx, record, func(record *kgo.Record, err error) {
		defer c.open.Add(-1)
		switch {
		case c.ctx.Err() != nil || since < c.rig.made.Load(): // of a topic made anew: it went to one of two, or to none
		case err != nil:
			c.rig.fail("%s: %s: %v", c.name, record.Value, err)
		default:
			c.wrote.Store(since)
			c.rig.acknowledge(wirePlace(since, record.Partition), record.Offset, string(record.Value))
		}
	})
}

// isGone says whether an error tells that a topic has another id or is not there.
func isGone(err error) bool {
	return errors.Is(err, kerr.UnknownTopicID) || errors.Is(err, kerr.UnknownTopicOrPartition)
}

// gone notes that the client may have to forget the topic, since it is another one by now.
func (c *wireClient) gone(err error) {
	if isGone(err) && c.rig.made.Load() > 0 {
		c.lost.Store(true)
	}
}

// renew has the client forget the topic when it was told that this is gone, and once after
// there is another one.
func (c *wireClient) renew(forget func()) {
	fresh, made := c.rig.fresh.Load(), c.rig.made.Load()
	if !c.lost.Swap(false) && (!fresh || c.since.Load() == made) {
		return
	}
	if forget(); fresh {
		c.since.Store(made)
	}
}

const wireAnew = 1000

// wirePlace numbers the partitions of topics that had the same name one after the other.
func wirePlace(since, partition int32) int32 { return since*wireAnew + partition }

// member starts a member of a group.
func (r *wireRig) member(group string, n int, opts ...kgo.Opt) *wireClient {
	var c *wireClient
	count := func(_ context.Context, _ *kgo.Client, all map[string][]int32) {
		for _, partitions := range all {
			c.moves.Add(int64(len(partitions)))
		}
	}
	ready := make(chan struct{})
	after := func(ctx context.Context, client *kgo.Client, all map[string][]int32) {
		<-ready
		count(ctx, client, all)
	}
	committed := func(_ *kgo.Client, _ *kmsg.OffsetCommitRequest, answer *kmsg.OffsetCommitResponse, err error) {
		<-ready
		if answer == nil || err != nil {
			return
		}
		for _, t := range answer.Topics {
			for _, p := range t.Partitions {
				r.told(c.name, "commit", kerr.ErrorForCode(p.ErrorCode))
			}
		}
	}
	c = r.newClient(fmt.Sprint(group, n), append([]kgo.Opt{kgo.ConsumerGroup(group), kgo.ConsumeTopics(wireTopic), kgo.AutoCommitMarks(), kgo.BlockRebalanceOnPoll(),
		kgo.AutoCommitInterval(200 * time.Millisecond), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(300 * time.Millisecond),
		kgo.SessionTimeout(wireSession), kgo.FetchMaxWait(500 * time.Millisecond), kgo.KeepRetryableFetchErrors(), kgo.AutoCommitCallback(committed),
		kgo.OnPartitionsAssigned(after), kgo.OnPartitionsRevoked(after), kgo.OnPartitionsLost(after)}, opts...)...)
	close(ready)
	c.tasks.Go(func() { c.poll(group) })
	return c
}

func (c *wireClient) poll(group string) {
	for c.ctx.Err() == nil {
		soon, cancel := context.WithTimeout(c.ctx, 10*wireMetadataAge)
		fetches := c.PollFetches(soon)
		cancel()
		fetches.EachError(func(topic string, partition int32, err error) {
			var code *kerr.Error
			switch {
			case soon.Err() != nil:
			case errors.As(err, &code):
				c.rig.told(c.name, fmt.Sprintf("fetch of %s-%d", topic, partition), err)
				c.gone(err)
			default:
				c.rig.note("%s: fetch of %s-%d: %v", c.name, topic, partition, err)
			}
		})
		fetches.EachTopic(func(t kgo.FetchTopic) {
			which := c.rig.which(t.TopicID)
			t.EachRecord(func(one *kgo.Record) {
				c.rig.read(group, wirePlace(which, one.Partition), one.Offset, string(one.Value), true)
				c.MarkCommitRecords(one)
			})
		})
		c.AllowRebalance()
		c.renew(func() {
			c.PurgeTopicsFromConsuming(wireTopic)
			c.AddConsumeTopics(wireTopic)
		})
	}
}

// watch looks at the committed offsets of groups, which never go back.
func (r *wireRig) watch(groups ...string) (stop func()) {
	ctx, cancel := context.WithCancel(r.t.Context())
	var tasks sync.WaitGroup
	for _, group := range groups {
		tasks.Go(func() {
			highest := map[int32]int64{}
			for pauseFor(ctx, 5*lookGap) {
				one, cancel := context.WithTimeout(ctx, settleMax)
				offsets, err := r.admin.FetchOffsets(one, group)
				cancel()
				r.told("watcher", "offsets of "+group, err)
				if err != nil {
					continue
				}
				for _, o := range offsets.Offsets().Sorted() {
					if o.At < highest[o.Partition] {
						r.fail("group %s: partition %d was at %d and is at %d", group, o.Partition, highest[o.Partition], o.At)
					}
					highest[o.Partition] = max(highest[o.Partition], o.At)
				}
			}
		})
	}
	return func() { cancel(); tasks.Wait() }
}

// settle waits until producers have all answers and the groups have read everything, and
// then has them go on.
func (r *wireRig) settle(groups ...string) {
	r.t.Helper()
	r.pauseLoad()
	for _, group := range groups {
		r.await("group "+group+" has read all", func(context.Context) error { return r.lag(group) })
	}
	r.goOn()
}

// pauseLoad has producers send nothing more, and waits for all answers.
func (r *wireRig) pauseLoad() {
	r.t.Helper()
	for _, c := range r.clients {
		c.rest.Store(true)
	}
	r.await("all is answered", func(context.Context) error {
		for _, c := range r.clients {
			if n := c.open.Load(); n > 0 {
				return fmt.Errorf("%s has no answer to %d records", c.name, n)
			}
		}
		return nil
	})
}

func (r *wireRig) goOn() {
	for _, c := range r.clients {
		c.rest.Store(false)
	}
}

// stable waits until the members of a group have their shares: two have half of the
// partitions each.
func (r *wireRig) stable(members ...*wireClient) {
	r.t.Helper()
	r.await("members have their share", func(context.Context) error {
		for _, c := range members {
			if n := int32(len(c.UncommittedOffsets()[wireTopic])); n != r.partitions.Load()/2 {
				return fmt.Errorf("%s has %d partitions", c.name, n)
			}
		}
		return nil
	})
}

// moved is how many partitions clients got or lost.
func moved(clients []*wireClient) (n int64) {
	for _, c := range clients {
		n += c.moves.Load()
	}
	return n
}

// check reads the whole log and holds it against what clients were told. Records of
// producers whose names begin with "once" are there once, and in order.
func (r *wireRig) check() {
	r.t.Helper()
	r.pauseLoad()
	ctx, cancel := r.context()
	defer cancel()
	r.mu.Lock()
	acked := maps.Clone(r.acked) // producers may go on
	r.mu.Unlock()
	var ends kadm.ListedOffsets
	r.await("the ends are known", func(ctx context.Context) (err error) {
		ends, err = r.admin.ListEndOffsets(ctx, wireTopic)
		return errors.Join(err, ends.Error())
	})
	left := map[int32]int64{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	reader := r.newClient("reader", kgo.ConsumeTopics(wireTopic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	found, last := map[string]bool{}, map[string]int64{}
	for len(left) > 0 {
		fetches := reader.PollFetches(ctx)
		if ctx.Err() != nil {
			r.t.Fatalf("the log cannot be read to its end: %v are left", left)
		}
		fetches.EachRecord(func(one *kgo.Record) {
			value := string(one.Value)
			r.read("reader", wirePlace(r.made.Load(), one.Partition), one.Offset, value, true)
			v := harnessValue(one.Value)
			key := fmt.Sprint(v.Writer, " ", one.Partition)
			if before, ok := last[key]; strings.HasPrefix(v.Writer, "once") && ok && v.N <= before {
				r.fail("%s is behind %d at %d of partition %d", value, before, one.Offset, one.Partition)
			}
			last[key], found[value] = v.N, true
			if one.Offset+1 >= left[one.Partition] {
				delete(left, one.Partition)
			}
		})
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for value := range acked {
		if !found[value] {
			r.failLocked("%s was acknowledged and is not there", value)
		}
	}
}
