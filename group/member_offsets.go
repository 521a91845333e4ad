package group

import (
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// Position is how far a group has read a partition: Offset is the next record's.
type Position struct {
	TopicPartition
	Offset int64
	// Epoch is the leader's that the record before was read in, or -1.
	Epoch int32
}

// Commit asks the coordinator to keep positions. They are of topics by id: nothing is
// kept for another topic of the same name.
func (m *Member) Commit(positions []Position) Message {
	q := kmsg.NewPtrOffsetCommitRequest()
	q.SetVersion(offsetCommitVersion)
	q.Group, q.MemberID, q.Generation, q.InstanceID = m.opts.Group, m.opts.ID, m.epoch, textOrNil(m.opts.Instance)
	byTopic := map[TopicID]int{}
	for _, p := range positions {
		i, ok := byTopic[p.Topic]
		if !ok {
			i = len(q.Topics)
			byTopic[p.Topic] = i
			t := kmsg.NewOffsetCommitRequestTopic()
			t.TopicID = p.Topic
			q.Topics = append(q.Topics, t)
		}
		one := kmsg.NewOffsetCommitRequestTopicPartition()
		one.Partition, one.Offset, one.LeaderEpoch = p.Partition, p.Offset, p.Epoch
		q.Topics[i].Partitions = append(q.Topics[i].Partitions, one)
	}
	return q
}

// Committed reads the answer to Commit. stale says that the member has moved to another
// epoch meanwhile and that the same positions can be sent again. Errors are *kerr.Error,
// joined: one for each partition that was refused, by the name that its topic had.
func (m *Member) Committed(answer Answer, names map[TopicID]string) (stale bool, err error) {
	r, ok := answer.(*kmsg.OffsetCommitResponse)
	if !ok {
		return false, fmt.Errorf("group: a commit of group %q was answered with a %T", m.opts.Group, answer)
	}
	var errs []error
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			p := &r.Topics[i].Partitions[j]
			stale = stale || p.ErrorCode == kerr.STALE_MEMBER_EPOCH
			if p.ErrorCode != kerr.NONE {
				errs = append(errs, kerr.Errorf(p.ErrorCode, "group %q did not keep the offset of %s/%d", m.opts.Group, names[r.Topics[i].TopicID], p.Partition))
			}
		}
	}
	return stale, errors.Join(errs...)
}

// Fetch asks for positions that the group has committed.
func (m *Member) Fetch(partitions []TopicPartition) Message {
	q := kmsg.NewPtrOffsetFetchRequest()
	q.SetVersion(offsetFetchVersion)
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = m.opts.Group
	if m.epoch > 0 {
		g.MemberID, g.MemberEpoch = &m.opts.ID, m.epoch
	}
	g.Topics = []kmsg.OffsetFetchRequestGroupTopic{}
	byTopic := map[TopicID]int{}
	for _, tp := range partitions {
		i, ok := byTopic[tp.Topic]
		if !ok {
			i = len(g.Topics)
			byTopic[tp.Topic] = i
			t := kmsg.NewOffsetFetchRequestGroupTopic()
			t.TopicID = tp.Topic
			g.Topics = append(g.Topics, t)
		}
		g.Topics[i].Partitions = append(g.Topics[i].Partitions, tp.Partition)
	}
	q.Groups = append(q.Groups, g)
	return q
}

// Fetched reads the answer to Fetch: the positions that there are. Errors are
// *kerr.Error; stale is as that of Committed.
func (m *Member) Fetched(answer Answer) (positions []Position, stale bool, err error) {
	r, ok := answer.(*kmsg.OffsetFetchResponse)
	if !ok || len(r.Groups) != 1 {
		return nil, false, fmt.Errorf("group: a fetch of offsets of group %q was answered with a %T", m.opts.Group, answer)
	}
	g := &r.Groups[0]
	if g.ErrorCode != kerr.NONE {
		return nil, g.ErrorCode == kerr.STALE_MEMBER_EPOCH, kerr.Errorf(g.ErrorCode, "group %q did not tell its offsets", m.opts.Group)
	}
	for i := range g.Topics {
		for j := range g.Topics[i].Partitions {
			p := &g.Topics[i].Partitions[j]
			if p.ErrorCode != kerr.NONE {
				return nil, false, kerr.Errorf(p.ErrorCode, "group %q did not tell its offset of partition %d of topic %x", m.opts.Group, p.Partition, g.Topics[i].TopicID)
			}
			if p.Offset >= 0 {
				positions = append(positions, Position{TopicPartition{g.Topics[i].TopicID, p.Partition}, p.Offset, p.LeaderEpoch})
			}
		}
	}
	return positions, false, nil
}
