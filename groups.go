package billet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/billetlog/billet/group"
	"github.com/billetlog/billet/internal/broker"
	"github.com/billetlog/billet/internal/kerr"
)

// GroupInfo is a consumer group as lists have it.
type GroupInfo struct {
	// Name is the group's id, as Kafka calls it.
	Name string
	// Type is "consumer" for the newer protocol (KIP-848), which consumers of this
	// library speak, and "classic" for the older one. A group that has nothing but
	// offsets is a classic one.
	Type string
	// State is "Stable" while all members have their partitions, "Empty" without
	// members, and otherwise a step of a rebalance, in Kafka's words.
	State string
}

// GroupDescription is all about a consumer group at one moment.
type GroupDescription struct {
	GroupInfo
	// Assignor says how partitions are spread: the choice of the members, or of the
	// coordinator.
	Assignor string
	Members  []GroupMember
	// Offsets has each partition of which the group has committed an offset or a member
	// has the care.
	Offsets []GroupOffset
}

// GroupMember is a member of a consumer group.
type GroupMember struct {
	// ID is the member's id, InstanceID that of a static member, else empty.
	ID, InstanceID string
	// ClientID is what it calls itself, Host where it is.
	ClientID, Host string
	// Partitions are those that it has.
	Partitions []TopicPartition
}

// GroupOffset is where a group is in a partition.
type GroupOffset struct {
	Topic     string
	Partition int32
	// Committed is the offset of the next record to be read, -1 when none was committed.
	Committed int64
	// End is the offset after the partition's last committed record, -1 when it is not
	// known, as of a topic that is gone.
	End int64
	// Lag is how many offsets are left to be read, 0 when End is not known. Without a
	// committed offset it counts from the partition's start.
	Lag int64
}

// Groups lists the consumer groups of the cluster by name, those of Kafka clients and of
// this library. It waits for coordinators as long as ctx allows.
//
// Errors: ErrClosed, ctx's own.
func (l *Log) Groups(ctx context.Context) ([]GroupInfo, error) {
	b, err := l.coordinators(ctx)
	if err != nil {
		return nil, err
	}
	list, err := b.ListGroups(ctx)
	if err != nil {
		return nil, fmt.Errorf("billet: groups: %w", adminError(err))
	}
	out := make([]GroupInfo, 0, len(list))
	for _, one := range list {
		out = append(out, GroupInfo(one))
	}
	return out, nil
}

// DescribeGroup tells who is in a group, what each member has, and how far the group has
// read.
//
// Errors: ErrUnknownGroup, ErrClosed, ctx's own.
func (l *Log) DescribeGroup(ctx context.Context, name string) (GroupDescription, error) {
	b, err := l.coordinators(ctx)
	if err != nil {
		return GroupDescription{}, err
	}
	d, err := b.DescribeGroup(ctx, name)
	if err != nil {
		return GroupDescription{}, fmt.Errorf("billet: describe group %q: %w", name, adminError(err))
	}
	out := GroupDescription{GroupInfo: GroupInfo(d.GroupInfo), Assignor: d.Assignor}
	committed := map[TopicPartition]bool{}
	for _, o := range d.Offsets {
		committed[TopicPartition{o.Topic, o.Partition}] = true
		out.Offsets = append(out.Offsets, l.groupOffset(ctx, o))
	}
	for _, m := range d.Members {
		member := GroupMember{ID: m.ID, InstanceID: m.Instance, ClientID: m.ClientID, Host: m.Host}
		for _, p := range m.Partitions {
			at := TopicPartition(p)
			member.Partitions = append(member.Partitions, at)
			if !committed[at] {
				committed[at] = true
				out.Offsets = append(out.Offsets, l.groupOffset(ctx, group.CommittedOffset{Topic: p.Topic, Partition: p.Partition, Offset: -1}))
			}
		}
		out.Members = append(out.Members, member)
	}
	return out, nil
}

// groupOffset adds to what a group has committed where the partition ends now.
func (l *Log) groupOffset(ctx context.Context, o group.CommittedOffset) GroupOffset {
	if p, err := l.catalog.Partition(o.Topic, o.Partition); err == nil && (p.Current() || p.Refresh(ctx) == nil) {
		return newGroupOffset(o, p)
	}
	return newGroupOffset(o, nil)
}

// newGroupOffset adds to what a group has committed where the partition ends, as far as
// that is known here.
func newGroupOffset(o group.CommittedOffset, p partitionLog) GroupOffset {
	out := GroupOffset{Topic: o.Topic, Partition: o.Partition, Committed: o.Offset, End: -1}
	if p == nil || !p.Known() {
		return out
	}
	out.End = p.HighWatermark()
	from := out.Committed
	if from < 0 {
		from = p.StartOffset()
	}
	out.Lag = max(out.End-from, 0)
	return out
}

// DeleteGroup deletes a group without members, with its offsets.
//
// Errors: ErrUnknownGroup, ErrGroupNotEmpty, ErrClosed, ctx's own.
func (l *Log) DeleteGroup(ctx context.Context, name string) error {
	b, err := l.coordinators(ctx)
	if err == nil {
		err = adminError(b.DeleteGroup(ctx, name))
	}
	if err != nil {
		return fmt.Errorf("billet: delete group %q: %w", name, err)
	}
	return nil
}

// AlterGroupOffsets sets what a group without members has committed: for each partition
// that is given, Committed is where the group goes on. Below 0 it takes the offset away.
// The group is made if it is not there. When there is an error some of the offsets may be
// set.
//
// Errors: ErrGroupNotEmpty, ErrUnknownTopic, ErrClosed, ctx's own; ErrUnknownGroup when
// offsets of a group are to be taken away that is not there.
func (l *Log) AlterGroupOffsets(ctx context.Context, name string, offsets ...GroupOffset) error {
	b, err := l.coordinators(ctx)
	if err == nil {
		list := make([]group.CommittedOffset, 0, len(offsets))
		for _, o := range offsets {
			list = append(list, group.CommittedOffset{Topic: o.Topic, Partition: o.Partition, Offset: o.Committed})
		}
		err = adminError(b.AlterOffsets(ctx, name, list))
	}
	if err != nil {
		return fmt.Errorf("billet: alter offsets of group %q: %w", name, err)
	}
	return nil
}

// coordinators is the way to all groups.
func (l *Log) coordinators(ctx context.Context) (*broker.Broker, error) {
	if err := l.check(ctx); err != nil {
		return nil, err
	}
	n, ok := l.node.(*machineNode)
	if !ok {
		return nil, fmt.Errorf("billet: log %s has no coordinators: %w", l.config.Dir, ErrClosed)
	}
	return n.broker, nil
}

// adminCodes are the public names of what coordinators say to administrators.
var adminCodes = map[int16]error{
	kerr.GROUP_ID_NOT_FOUND:         ErrUnknownGroup,
	kerr.NON_EMPTY_GROUP:            ErrGroupNotEmpty,
	kerr.UNKNOWN_MEMBER_ID:          ErrGroupNotEmpty, // an offset can be set by members alone
	kerr.GROUP_SUBSCRIBED_TO_TOPIC:  ErrGroupNotEmpty,
	kerr.UNKNOWN_TOPIC_OR_PARTITION: ErrUnknownTopic,
	kerr.INVALID_GROUP_ID:           ErrInvalidConfig,
}

// adminError gives an error of a coordinator its public name.
func adminError(err error) error {
	var told *kerr.Error
	if errors.As(err, &told) {
		if public := adminCodes[told.Code]; public != nil {
			return &seamError{public: public, cause: err}
		}
	}
	return wrapSeam(err)
}

// GroupsMetrics is what this node knows of the groups that it coordinates.
type GroupsMetrics struct {
	// Groups and Members are how many there are.
	Groups, Members int
	// List has up to about 1,000 groups with 10,000 offsets in all, by name. Ends of
	// partitions that are led elsewhere are what was heard last.
	List []GroupMetrics
}

// GroupMetrics is a snapshot of one group.
type GroupMetrics struct {
	GroupInfo
	Members int
	Offsets []GroupOffset
	// Lag is the sum of those of Offsets.
	Lag int64
}

// groupsMetricsWait bounds how long Metrics waits for coordinators, which answer between
// two requests.
const groupsMetricsWait = 200 * time.Millisecond

// groupsMetrics looks at the coordinators of this node.
func (l *Log) groupsMetrics(b *broker.Broker) GroupsMetrics {
	ctx, cancel := context.WithTimeout(context.Background(), groupsMetricsWait)
	defer cancel()
	seen := b.GroupsHere(ctx)
	m := GroupsMetrics{Groups: seen.Groups, Members: seen.Members}
	for i := range seen.List {
		s := &seen.List[i]
		one := GroupMetrics{GroupInfo: GroupInfo{Name: s.Group, Type: s.Type, State: s.State}, Members: s.Members}
		for _, o := range s.Offsets {
			p, err := l.catalog.Partition(o.Topic, o.Partition)
			if err != nil {
				p = nil
			}
			offset := newGroupOffset(o, p)
			one.Offsets, one.Lag = append(one.Offsets, offset), one.Lag+offset.Lag
		}
		m.List = append(m.List, one)
	}
	return m
}
