package billet

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TestGroupsBounds gives each field of Groups a value that it must not have.
func TestGroupsBounds(t *testing.T) {
	for field, g := range map[string]Groups{
		"OffsetsPartitions":    {OffsetsPartitions: maxOffsetsPartitions + 1},
		"OffsetsRetention":     {OffsetsRetention: -1},
		"OffsetsCheckInterval": {OffsetsCheckInterval: 1},
		"SessionTimeoutMin":    {SessionTimeoutMin: -1},
		"SessionTimeoutMax":    {SessionTimeoutMax: time.Second},
		"SessionTimeout":       {SessionTimeout: -1},
		"HeartbeatInterval":    {HeartbeatInterval: time.Minute},
		"MembersMax":           {MembersMax: -1},
		"GroupsMax":            {GroupsMax: -1},
	} {
		_, err := Open(Config{Dir: t.TempDir(), Groups: g})
		if !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), "Groups."+field+" is ") {
			t.Errorf("%s out of bounds: %v", field, err)
		}
	}
}

// The process sees the groups of all members, how far they are, and changes what they
// have.
func TestGroupsAdmin(t *testing.T) {
	log := groupsLog(t, t.TempDir())
	defer closeLog(t, log)
	ctx := within(t)
	if list, err := log.Groups(ctx); err != nil || len(list) != 0 {
		t.Errorf("groups at first: %v, %v", list, err)
	}
	if err := log.CreateTopic(ctx, Topic{Name: "t", Partitions: 2}); err != nil {
		t.Fatal(err)
	}
	client := kafkaClient(t, log, kgo.DefaultProduceTopic("t"), kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
	produce := func() {
		for range 10 {
			client.Produce(ctx, &kgo.Record{Value: []byte("v")}, nil)
		}
		if err := client.Flush(ctx); err != nil {
			t.Fatal(err)
		}
	}
	s := newSum()
	var readers []*reader
	for n, opts := range [][]kgo.Opt{
		{kgo.ConsumerGroup("classic"), kgo.Balancers(kgo.RangeBalancer())},
		{kgo.ConsumerGroup("consumer"), kgo.ServerSideBalancer(), kgo.Balancers(kgo.RangeBalancer())},
	} {
		readers = append(readers, read(t, log, s, append(opts, kgo.ClientID(fmt.Sprint("client-", n)))...))
	}
	produce()
	for _, name := range []string{"classic", "consumer"} {
		var d GroupDescription
		var err error
		for d, err = log.DescribeGroup(ctx, name); ; d, err = log.DescribeGroup(ctx, name) {
			if err == nil && d.State == "Stable" && len(d.Offsets) == 2 && d.Offsets[0].Committed >= 0 && d.Offsets[1].Committed >= 0 &&
				d.Offsets[0].Lag+d.Offsets[1].Lag == 0 {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("%s is %+v, %v", name, d, err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		if d.Type != name || len(d.Members) != 1 || !strings.HasPrefix(d.Members[0].ClientID, "client-") || len(d.Members[0].Partitions) != 2 ||
			d.Offsets[0].End+d.Offsets[1].End != 10 {
			t.Errorf("%s is %+v", name, d)
		}
		if err := log.DeleteGroup(ctx, name); !errors.Is(err, ErrGroupNotEmpty) {
			t.Errorf("deleting group %s with a member: %v", name, err)
		}
		if err := log.AlterGroupOffsets(ctx, name, GroupOffset{Topic: "t"}); !errors.Is(err, ErrGroupNotEmpty) {
			t.Errorf("altering group %s with a member: %v", name, err)
		}
	}
	for _, r := range readers {
		r.close(t)
	}
	produce()
	if err := log.AlterGroupOffsets(ctx, "consumer", GroupOffset{Topic: "t", Committed: 1}, GroupOffset{Topic: "t", Partition: 1, Committed: -1}); err != nil {
		t.Fatal(err)
	}
	d, err := log.DescribeGroup(ctx, "consumer")
	if err != nil || d.State != "Empty" || len(d.Offsets) != 1 || d.Offsets[0].Committed != 1 || d.Offsets[0].Lag != d.Offsets[0].End-1 {
		t.Errorf("after it was altered: %+v, %v", d, err)
	}
	m := log.Metrics().Groups
	if m.Groups != 2 || len(m.List) != 2 || m.List[0].Name != "classic" || m.List[0].Lag != 10 || m.List[1].Lag != d.Offsets[0].Lag {
		t.Errorf("metrics: %+v", m)
	}
	if err := log.DeleteGroup(ctx, "classic"); err != nil {
		t.Error(err)
	}
	if _, err := log.DescribeGroup(ctx, "classic"); !errors.Is(err, ErrUnknownGroup) {
		t.Errorf("a group that was deleted: %v", err)
	}
	list, err := log.Groups(ctx)
	if err != nil || fmt.Sprint(list) != "[{consumer consumer Empty}]" {
		t.Errorf("groups %v, %v", list, err)
	}
	if err := log.AlterGroupOffsets(ctx, "consumer", GroupOffset{Topic: "none"}); !errors.Is(err, ErrUnknownTopic) {
		t.Errorf("an offset of no topic: %v", err)
	}
}
