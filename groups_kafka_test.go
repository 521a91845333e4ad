package billet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupsLog is a node with a listener whose groups do not take long.
func groupsLog(t *testing.T, dir string) *Log {
	t.Helper()
	log, err := Open(Config{Dir: dir, Kafka: Kafka{Addr: "127.0.0.1:0"}, Groups: Groups{
		OffsetsPartitions: 4, InitialRebalanceDelay: 50 * time.Millisecond, HeartbeatInterval: 100 * time.Millisecond,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func closeLog(t *testing.T, log *Log) {
	t.Helper()
	if err := log.Close(); err != nil {
		t.Error(err)
	}
}

// commitOffset commits as an administrator does, and returns the code of each partition.
func commitOffset(ctx context.Context, t *testing.T, client *kgo.Client, name, topic string, offset int64, partitions ...int32) (codes []int16) {
	t.Helper()
	q := kmsg.NewPtrOffsetCommitRequest()
	q.Group, q.Generation = name, -1
	one := kmsg.NewOffsetCommitRequestTopic()
	one.Topic = topic
	named := kmsg.NewMetadataRequestTopic()
	named.Topic = &topic
	which := kmsg.NewPtrMetadataRequest()
	which.Topics = append(which.Topics, named)
	known, err := which.RequestWith(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	one.TopicID = known.Topics[0].TopicID
	for _, n := range partitions {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset = n, offset
		one.Partitions = append(one.Partitions, p)
	}
	q.Topics = append(q.Topics, one)
	r, err := q.RequestWith(ctx, client)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range r.Topics[0].Partitions {
		codes = append(codes, p.ErrorCode)
	}
	return codes
}

// Offsets are there after the node was closed and opened, and a group that was deleted
// is not.
func TestGroupsRestart(t *testing.T) {
	dir := t.TempDir()
	log := groupsLog(t, dir)
	if err := log.CreateTopic(t.Context(), Topic{Name: "t", Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	ctx := within(t)
	client := kafkaClient(t, log)
	if codes := commitOffset(ctx, t, client, "kept", "t", 7, 0, 2, 1); fmt.Sprint(codes) != "[0 3 0]" {
		t.Fatalf("a commit to partitions 0, one that is not there, and 1: codes %v", codes)
	}
	commitOffset(ctx, t, client, "deleted", "t", 7, 0)
	if _, err := kadm.NewClient(client).DeleteGroup(ctx, "deleted"); err != nil {
		t.Fatal(err)
	}
	client.Close()
	closeLog(t, log)

	log = groupsLog(t, dir)
	defer closeLog(t, log)
	admin := kadm.NewClient(kafkaClient(t, log))
	offsets, err := admin.FetchOffsets(ctx, "kept")
	if err != nil {
		t.Fatal(err)
	}
	for n := range int32(2) {
		if o, ok := offsets.Lookup("t", n); !ok || o.At != 7 {
			t.Errorf("partition %d is at %v, %v", n, o, ok)
		}
	}
	list, err := admin.ListGroups(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(list.Groups()) != "[kept]" {
		t.Errorf("groups %v after the restart", list.Groups())
	}
}

// Offsets of a topic go with it, and a topic of the same name begins without.
func TestGroupsTopicDeleted(t *testing.T) {
	log := groupsLog(t, t.TempDir())
	defer closeLog(t, log)
	ctx := within(t)
	client := kafkaClient(t, log)
	for range 3 {
		if err := log.CreateTopic(ctx, Topic{Name: "t", Partitions: 1}); err != nil {
			t.Fatal(err)
		}
		offsets, err := kadm.NewClient(client).FetchOffsets(ctx, "g")
		if err != nil {
			t.Fatal(err)
		}
		if o, ok := offsets.Lookup("t", 0); ok && o.At >= 0 {
			t.Fatalf("a new topic begins at %d", o.At)
		}
		if codes := commitOffset(ctx, t, client, "g", "t", 7, 0); codes[0] != 0 {
			t.Fatalf("code %d", codes[0])
		}
		if err := log.DeleteTopic(ctx, "t"); err != nil {
			t.Fatal(err)
		}
	}
}

// checkLag fails unless a group has committed all of a topic.
func checkLag(ctx context.Context, t *testing.T, client *kgo.Client, name, topic string) {
	t.Helper()
	admin := kadm.NewClient(client)
	var commits kadm.OffsetResponses
	var ends kadm.ListedOffsets
	eventually(t, "all partitions have leaders", func(context.Context) bool {
		var err, endsErr error
		commits, err = admin.FetchOffsets(ctx, name)
		ends, endsErr = admin.ListEndOffsets(ctx, topic)
		return errors.Join(err, endsErr, ends.Error()) == nil
	})
	ends.Each(func(end kadm.ListedOffset) {
		if at, ok := commits.Lookup(topic, end.Partition); (!ok || at.At != end.Offset) && end.Offset > 0 {
			t.Errorf("%s-%d ends at %d, and the group is at %d, %v", topic, end.Partition, end.Offset, at.At, ok)
		}
	})
}

// members are the kinds of members that groups of franz-go have.
var members = []struct {
	name   string
	opts   []kgo.Opt
	static bool
}{
	{name: "range", opts: []kgo.Opt{kgo.Balancers(kgo.RangeBalancer())}},
	{name: "sticky", opts: []kgo.Opt{kgo.Balancers(kgo.StickyBalancer())}},
	{name: "cooperative", opts: []kgo.Opt{kgo.Balancers(kgo.CooperativeStickyBalancer())}},
	{name: "static", opts: []kgo.Opt{kgo.Balancers(kgo.CooperativeStickyBalancer())}, static: true},
	{name: "consumer", opts: []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer())}},
	{name: "consumer-static", opts: []kgo.Opt{kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer())}, static: true},
}

// reader is a member of a group that counts what it reads.
type reader struct {
	client   *kgo.Client
	instance string // of a static member of the newer protocol
	ended    chan struct{}
	stop     context.CancelFunc
}

// sum is what all readers have read.
type sum struct {
	sync.Mutex
	seen map[string]int
	more chan struct{}
}

func newSum() *sum { return &sum{seen: map[string]int{}, more: make(chan struct{}, 1)} }

func (s *sum) add(r *kgo.Record) {
	s.Lock()
	defer s.Unlock()
	s.seen[string(r.Value)]++
	select {
	case s.more <- struct{}{}:
	default:
	}
}

// await waits until n different records were read.
func (s *sum) await(ctx context.Context, t *testing.T, n int) {
	t.Helper()
	for {
		s.Lock()
		have := len(s.seen)
		s.Unlock()
		if have >= n {
			return
		}
		select {
		case <-s.more:
		case <-ctx.Done():
			t.Fatalf("%d of %d records were read", have, n)
		}
	}
}

// read starts a member.
func read(t *testing.T, log *Log, s *sum, opts ...kgo.Opt) *reader {
	t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(log.KafkaAddr()), kgo.Dialer(dialAgain), kgo.ConsumeTopics("t"), kgo.AutoCommitMarks(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.HeartbeatInterval(100 * time.Millisecond), kgo.BlockRebalanceOnPoll(),
		kgo.AutoCommitInterval(100 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	r := &reader{client: client, ended: make(chan struct{}), stop: stop}
	go func() {
		defer close(r.ended)
		for ctx.Err() == nil {
			fetches := client.PollFetches(ctx)
			fetches.EachRecord(func(one *kgo.Record) {
				s.add(one)
				client.MarkCommitRecords(one)
			})
			client.AllowRebalance()
		}
	}()
	return r
}

// close ends a member, which commits what it has read.
func (r *reader) close(t *testing.T) {
	t.Helper()
	r.stop()
	<-r.ended
	if err := r.client.CommitMarkedOffsets(t.Context()); err != nil && t.Context().Err() == nil {
		t.Logf("the last commit: %v", err)
	}
	if r.instance != "" { // the client does not name its instance when it leaves, and is refused
		q := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		q.Group, q.MemberEpoch, q.InstanceID = "g", -2, &r.instance
		q.MemberID, _ = r.client.GroupMetadata()
		if a, err := q.RequestWith(t.Context(), r.client); err != nil || a.ErrorCode != 0 {
			t.Logf("leaving for a while: %+v, %v", a, err)
		}
	}
	r.client.CloseAllowingRebalance()
}

// Members come and go, and what they read together is all there is.
func TestGroupsMembers(t *testing.T) {
	for _, kind := range members {
		t.Run(kind.name, func(t *testing.T) {
			log := groupsLog(t, t.TempDir())
			defer closeLog(t, log)
			ctx := within(t)
			if err := log.CreateTopic(ctx, Topic{Name: "t", Partitions: 6}); err != nil {
				t.Fatal(err)
			}
			producer := kafkaClient(t, log, kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
			wrote := 0
			produce := func() {
				for range 60 {
					wrote++
					producer.Produce(ctx, &kgo.Record{Value: fmt.Append(nil, wrote)}, nil)
				}
				if err := producer.Flush(ctx); err != nil {
					t.Fatal(err)
				}
			}
			s := newSum()
			opts := func(n int) []kgo.Opt {
				o := append([]kgo.Opt{kgo.ConsumerGroup("g")}, kind.opts...)
				if kind.static {
					o = append(o, kgo.InstanceID(fmt.Sprint("instance-", n)))
				}
				return o
			}
			start := func(n int) *reader {
				r := read(t, log, s, opts(n)...)
				if kind.name == "consumer-static" {
					r.instance = fmt.Sprint("instance-", n)
				}
				return r
			}
			var readers []*reader
			for n := range 3 {
				readers = append(readers, start(n))
				produce()
				s.await(ctx, t, wrote)
			}
			readers[0].close(t)
			if kind.static { // the same member comes back
				readers[0] = start(0)
			} else {
				readers = readers[1:]
			}
			produce()
			s.await(ctx, t, wrote)
			for _, r := range readers {
				r.close(t)
			}
			checkLag(ctx, t, producer, "g", "t")
			for value, n := range s.seen {
				if n > 1 {
					t.Logf("record %s was read %d times", value, n)
				}
			}
		})
	}
}
