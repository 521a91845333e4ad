package group

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// Message is what a member says to its coordinator. The name is for packages that hand
// it on and know nothing of it.
type Message = kmsg.Request

// Answer is what a member hears.
type Answer = kmsg.Response

// TopicPartition is a partition of one incarnation of a topic.
type TopicPartition struct {
	Topic     TopicID
	Partition int32
}

// MemberOptions say who a member is and what it wants.
type MemberOptions struct {
	// Group is the group's name, ID the member's id, different from all others.
	Group, ID string
	// Instance makes it a static member (KIP-345); Rack is where it runs, Assignor how
	// it wants partitions to be spread. Empty: none.
	Instance, Rack, Assignor string
	// Topics are names, Pattern an expression that names match in whole; of the topics
	// that fit either the member wants partitions.
	Topics  []string
	Pattern string
	// RebalanceTimeout is how long it may take to give partitions up.
	RebalanceTimeout time.Duration
}

// Member is a consumer's side of a consumer group (KIP-848): what to say to the
// coordinator, and what follows from the answers. Like a Core it is pure, and not safe
// for concurrent use.
//
// Its owner sends Heartbeat and gives the answer to Heard, one at a time, again after
// Interval or when Changed says so. It gives up partitions that it has and that are not
// in Target, takes up those that are new, and tells of both with Hold.
type Member struct {
	opts     MemberOptions
	epoch    int32
	interval time.Duration
	target   map[TopicPartition]bool
	holds    []TopicPartition

	full    bool // everything is said anew: it joins, or an answer was lost
	changed bool // of what it holds or wants nothing was said yet
}

// NewMember makes a member that has not joined yet.
func NewMember(o MemberOptions) *Member {
	return &Member{opts: o, full: true, interval: defaultInterval, target: map[TopicPartition]bool{}}
}

// defaultInterval is how long to wait after a heartbeat until the coordinator has said.
const defaultInterval = time.Second

// Version of the requests that a member makes.
const (
	heartbeatVersion    = 1
	offsetCommitVersion = 10 // which has topics by id
	offsetFetchVersion  = 10
)

// ID is the member's id.
func (m *Member) ID() string { return m.opts.ID }

// Epoch is the member's, 0 when it is not in the group.
func (m *Member) Epoch() int32 { return max(m.epoch, 0) }

// Interval is how long to wait between heartbeats.
func (m *Member) Interval() time.Duration { return m.interval }

// Changed says that there is something to tell at once.
func (m *Member) Changed() bool { return m.changed }

// Target is what the member shall have.
func (m *Member) Target() map[TopicPartition]bool { return m.target }

// Subscribe changes what it wants.
func (m *Member) Subscribe(topics []string, pattern string) {
	m.opts.Topics, m.opts.Pattern = topics, pattern
	m.full, m.changed = true, true
}

// Hold says what the member has from now on.
func (m *Member) Hold(has []TopicPartition) {
	m.holds, m.changed = has, true
}

// Heartbeat is what to say now.
func (m *Member) Heartbeat() Message {
	q := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	q.SetVersion(heartbeatVersion)
	q.Group, q.MemberID, q.MemberEpoch = m.opts.Group, m.opts.ID, m.epoch
	q.InstanceID = textOrNil(m.opts.Instance)
	if m.full {
		q.RackID, q.ServerAssignor = textOrNil(m.opts.Rack), textOrNil(m.opts.Assignor)
		q.RebalanceTimeoutMillis = int32(m.opts.RebalanceTimeout.Milliseconds())
		q.SubscribedTopicNames = append([]string{}, m.opts.Topics...)
		q.SubscribedTopicRegex = &m.opts.Pattern
	}
	if m.full || m.changed {
		q.Topics = []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		byTopic := map[TopicID]int{}
		for _, tp := range m.holds {
			i, ok := byTopic[tp.Topic]
			if !ok {
				i = len(q.Topics)
				byTopic[tp.Topic] = i
				q.Topics = append(q.Topics, kmsg.ConsumerGroupHeartbeatRequestTopic{TopicID: tp.Topic})
			}
			q.Topics[i].Partitions = append(q.Topics[i].Partitions, tp.Partition)
		}
	}
	m.full, m.changed = false, false
	return q
}

func textOrNil(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// Leave is what to say when the member goes: for good, or, if it is static and comes
// back, for a while.
func (m *Member) Leave(back bool) Message {
	q := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	q.SetVersion(heartbeatVersion)
	q.Group, q.MemberID, q.MemberEpoch, q.InstanceID = m.opts.Group, m.opts.ID, epochLeave, textOrNil(m.opts.Instance)
	if back && m.opts.Instance != "" {
		q.MemberEpoch = epochLeaveStatic
	}
	m.lose()
	return q
}

// Unheard says that no answer came: the next heartbeat says everything.
func (m *Member) Unheard() { m.full = true }

// lose gives up everything; the next heartbeat joins.
func (m *Member) lose() {
	m.epoch, m.full, m.changed = 0, true, false
	m.holds, m.target = nil, map[TopicPartition]bool{}
}

// Heard takes the answer to a heartbeat. lost says that the member is not in the group
// any more and that all it had is somebody else's: it joins with the next heartbeat. An
// error is the coordinator's; one that is final does not go away by itself.
func (m *Member) Heard(answer Answer) (lost, final bool, err error) {
	r, ok := answer.(*kmsg.ConsumerGroupHeartbeatResponse)
	if !ok {
		m.Unheard()
		return false, false, fmt.Errorf("group: a heartbeat of group %q was answered with a %T", m.opts.Group, answer)
	}
	switch r.ErrorCode {
	case kerr.NONE:
	case kerr.UNKNOWN_MEMBER_ID, kerr.FENCED_MEMBER_EPOCH:
		m.lose()
		return true, false, m.refusal(r)
	case kerr.FENCED_INSTANCE_ID, kerr.INVALID_REQUEST, kerr.INVALID_GROUP_ID, kerr.UNSUPPORTED_ASSIGNOR, kerr.INVALID_REGULAR_EXPRESSION,
		kerr.GROUP_MAX_SIZE_REACHED, kerr.GROUP_AUTHORIZATION_FAILED, kerr.TOPIC_AUTHORIZATION_FAILED:
		m.lose()
		return true, true, m.refusal(r)
	default: // UNRELEASED_INSTANCE_ID, GROUP_ID_NOT_FOUND and what a coordinator on the move says
		m.Unheard()
		return false, false, m.refusal(r)
	}
	m.epoch = r.MemberEpoch
	if r.HeartbeatIntervalMillis > 0 {
		m.interval = time.Duration(r.HeartbeatIntervalMillis) * time.Millisecond
	}
	if r.Assignment != nil {
		m.target = map[TopicPartition]bool{}
		for i := range r.Assignment.Topics {
			for _, n := range r.Assignment.Topics[i].Partitions {
				m.target[TopicPartition{r.Assignment.Topics[i].TopicID, n}] = true
			}
		}
	}
	return false, false, nil
}

// refusal is an error answer as an error.
func (m *Member) refusal(r *kmsg.ConsumerGroupHeartbeatResponse) error {
	why := "no reason was given"
	if r.ErrorMessage != nil {
		why = *r.ErrorMessage
	}
	return kerr.Errorf(r.ErrorCode, "group %q, member %s: %s", m.opts.Group, m.opts.ID, why)
}
