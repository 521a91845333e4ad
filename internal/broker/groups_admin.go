package broker

import (
	"cmp"
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/group"
	"github.com/billetlog/billet/internal/kerr"
	"github.com/billetlog/billet/transport/kafka"
)

// GroupInfo is a group as lists have it.
type GroupInfo struct {
	Name string
	// Type is "classic" or "consumer", State what Kafka calls it.
	Type, State string
}

// GroupDescription is all about a group.
type GroupDescription struct {
	GroupInfo
	// Assignor is who spreads the partitions: the protocol of classic groups.
	Assignor string
	Members  []GroupMember
	Offsets  []group.CommittedOffset
}

// GroupMember is a member of a group.
type GroupMember struct {
	ID, Instance, ClientID, Host string
	Partitions                   []GroupPartition
}

// GroupPartition is a partition that a member has.
type GroupPartition struct {
	Topic     string
	Partition int32
}

// administrator is who asks in the name of the process.
var administrator = kafka.Client{ID: "billet"}

// ListGroups lists the groups of the cluster by name.
func (b *Broker) ListGroups(ctx context.Context) ([]GroupInfo, error) {
	q := kmsg.NewPtrListGroupsRequest()
	q.Version = 5
	answer, err := b.Ask(ctx, administrator, q)
	if err != nil {
		return nil, err
	}
	r := answer.(*kmsg.ListGroupsResponse)
	if r.ErrorCode != kerr.NONE {
		return nil, kerr.Errorf(r.ErrorCode, "listing groups")
	}
	list := make([]GroupInfo, 0, len(r.Groups))
	for i := range r.Groups {
		list = append(list, GroupInfo{Name: r.Groups[i].Group, Type: r.Groups[i].GroupType, State: r.Groups[i].GroupState})
	}
	slices.SortFunc(list, func(a, b GroupInfo) int { return cmp.Compare(a.Name, b.Name) })
	return list, nil
}

// DescribeGroup tells all about a group. Errors: GROUP_ID_NOT_FOUND.
func (b *Broker) DescribeGroup(ctx context.Context, name string) (GroupDescription, error) {
	d := GroupDescription{GroupInfo: GroupInfo{Name: name}}
	classic := kmsg.NewPtrDescribeGroupsRequest()
	classic.Version, classic.Groups = 6, []string{name}
	answer, err := b.Ask(ctx, administrator, classic)
	if err != nil {
		return d, err
	}
	one := &answer.(*kmsg.DescribeGroupsResponse).Groups[0]
	switch one.ErrorCode {
	case kerr.NONE:
		d.fromClassic(one)
	case kerr.GROUP_ID_NOT_FOUND:
		if err := b.describeConsumer(ctx, &d); err != nil {
			return d, err
		}
	default:
		return d, kerr.Errorf(one.ErrorCode, "describing group %q", name)
	}
	q := kmsg.NewPtrOffsetFetchRequest()
	q.Version = 8
	all := kmsg.NewOffsetFetchRequestGroup()
	all.Group = name
	q.Groups = append(q.Groups, all)
	if answer, err = b.Ask(ctx, administrator, q); err != nil {
		return d, err
	}
	offsets := &answer.(*kmsg.OffsetFetchResponse).Groups[0]
	for _, t := range offsets.Topics {
		for _, p := range t.Partitions {
			d.Offsets = append(d.Offsets, group.CommittedOffset{Topic: t.Topic, Partition: p.Partition, Offset: p.Offset})
		}
	}
	return d, nil
}

func (d *GroupDescription) fromClassic(one *kmsg.DescribeGroupsResponseGroup) {
	d.Type, d.State, d.Assignor = "classic", one.State, one.Protocol
	for i := range one.Members {
		m := &one.Members[i]
		member := GroupMember{ID: m.MemberID, ClientID: m.ClientID, Host: m.ClientHost}
		if m.InstanceID != nil {
			member.Instance = *m.InstanceID
		}
		var has kmsg.ConsumerMemberAssignment
		if one.ProtocolType == "consumer" && has.ReadFrom(m.MemberAssignment) == nil { // what others say to each other is theirs
			for _, t := range has.Topics {
				for _, p := range t.Partitions {
					member.Partitions = append(member.Partitions, GroupPartition{t.Topic, p})
				}
			}
		}
		d.Members = append(d.Members, member)
	}
}

func (b *Broker) describeConsumer(ctx context.Context, d *GroupDescription) error {
	q := kmsg.NewPtrConsumerGroupDescribeRequest()
	q.Version, q.Groups = 1, []string{d.Name}
	answer, err := b.Ask(ctx, administrator, q)
	if err != nil {
		return err
	}
	one := &answer.(*kmsg.ConsumerGroupDescribeResponse).Groups[0]
	if one.ErrorCode != kerr.NONE {
		return kerr.Errorf(one.ErrorCode, "there is no group %q", d.Name)
	}
	d.Type, d.State, d.Assignor = "consumer", one.State, one.AssignorName
	for i := range one.Members {
		m := &one.Members[i]
		member := GroupMember{ID: m.MemberID, ClientID: m.ClientID, Host: m.ClientHost}
		if m.InstanceID != nil {
			member.Instance = *m.InstanceID
		}
		for _, t := range m.Assignment.TopicPartitions {
			for _, p := range t.Partitions {
				member.Partitions = append(member.Partitions, GroupPartition{t.Topic, p})
			}
		}
		d.Members = append(d.Members, member)
	}
	return nil
}

// DeleteGroup deletes a group without members, with its offsets. Errors:
// GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP.
func (b *Broker) DeleteGroup(ctx context.Context, name string) error {
	q := kmsg.NewPtrDeleteGroupsRequest()
	q.Version, q.Groups = 2, []string{name}
	answer, err := b.Ask(ctx, administrator, q)
	if err != nil {
		return err
	}
	if code := answer.(*kmsg.DeleteGroupsResponse).Groups[0].ErrorCode; code != kerr.NONE {
		return kerr.Errorf(code, "deleting group %q", name)
	}
	return nil
}

// AlterOffsets sets the offsets of a group without members, which is made if it is not
// there; those below 0 are removed. Errors: UNKNOWN_MEMBER_ID when it has members;
// UNKNOWN_TOPIC_OR_PARTITION, and then those of other partitions may be set.
func (b *Broker) AlterOffsets(ctx context.Context, name string, offsets []group.CommittedOffset) error {
	set := kmsg.NewPtrOffsetCommitRequest()
	set.Version, set.Group, set.Generation = 8, name, -1
	unset := kmsg.NewPtrOffsetDeleteRequest()
	unset.Group = name
	for _, o := range offsets {
		if o.Offset >= 0 {
			t := kmsg.NewOffsetCommitRequestTopic()
			p := kmsg.NewOffsetCommitRequestTopicPartition()
			t.Topic, p.Partition, p.Offset = o.Topic, o.Partition, o.Offset
			t.Partitions = append(t.Partitions, p)
			set.Topics = append(set.Topics, t)
			continue
		}
		t := kmsg.NewOffsetDeleteRequestTopic()
		p := kmsg.NewOffsetDeleteRequestTopicPartition()
		t.Topic, p.Partition = o.Topic, o.Partition
		t.Partitions = append(t.Partitions, p)
		unset.Topics = append(unset.Topics, t)
	}
	if len(set.Topics) > 0 {
		answer, err := b.Ask(ctx, administrator, set)
		if err != nil {
			return err
		}
		for _, t := range answer.(*kmsg.OffsetCommitResponse).Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode != kerr.NONE {
					return kerr.Errorf(p.ErrorCode, "the offset of group %q in %s-%d", name, t.Topic, p.Partition)
				}
			}
		}
	}
	if len(unset.Topics) == 0 {
		return nil
	}
	answer, err := b.Ask(ctx, administrator, unset)
	if err != nil {
		return err
	}
	r := answer.(*kmsg.OffsetDeleteResponse)
	if r.ErrorCode != kerr.NONE {
		return kerr.Errorf(r.ErrorCode, "offsets of group %q", name)
	}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != kerr.NONE {
				return kerr.Errorf(p.ErrorCode, "the offset of group %q in %s-%d", name, t.Topic, p.Partition)
			}
		}
	}
	return nil
}

// GroupsSeen is what is coordinated here.
type GroupsSeen struct {
	Groups, Members int
	// List has the first groups of each partition.
	List []group.Status
}

// Bounds of GroupsHere, for all partitions together.
const (
	seenGroupsMax  = 1_000
	seenOffsetsMax = 10_000
)

// GroupsHere tells of the groups that are coordinated here. Coordinators that do not
// answer before ctx ends are left out.
func (b *Broker) GroupsHere(ctx context.Context) GroupsSeen {
	var out GroupsSeen
	var waits []func()
	n := b.groups.count()
	for i := range n {
		c := b.groups.at(i)
		if c == nil || c.refusal() != kerr.NONE {
			continue
		}
		seen := make(chan GroupsSeen, 1)
		a := c.look(ctx, func(core *group.Core) {
			var s GroupsSeen
			s.List, s.Groups, s.Members = core.Look(seenGroupsMax/int(n)+1, seenOffsetsMax/int(n)+1)
			seen <- s
		})
		waits = append(waits, func() {
			select {
			case <-a.answer:
			case <-ctx.Done():
			}
			select {
			case s := <-seen:
				out.Groups, out.Members, out.List = out.Groups+s.Groups, out.Members+s.Members, append(out.List, s.List...)
			default: // it stopped leading, or has too much to do
			}
		})
	}
	for _, wait := range waits {
		wait()
	}
	slices.SortFunc(out.List, func(a, b group.Status) int { return cmp.Compare(a.Group, b.Group) })
	return out
}
