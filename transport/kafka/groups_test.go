package kafka

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// groupsBroker has coordinators that take everything, and notes what they are asked.
type groupsBroker struct {
	*adminBroker

	heard struct {
		sync.Mutex
		asked []kmsg.Request
	}
}

// requests are those that the coordinators were asked.
func (b *groupsBroker) requests() []kmsg.Request {
	b.heard.Lock()
	defer b.heard.Unlock()
	return slices.Clone(b.heard.asked)
}

func (b *groupsBroker) FindCoordinator(_ context.Context, group string) (int32, error) {
	if group == "lost" {
		return 0, kerr.Errorf(kerr.COORDINATOR_NOT_AVAILABLE, "nobody leads")
	}
	if group == "far" {
		return 99, nil
	}
	return 8, nil
}

func (b *groupsBroker) Coordinate(_ context.Context, _ Client, request kmsg.Request) kmsg.Response {
	b.heard.Lock()
	b.heard.asked = append(b.heard.asked, request)
	b.heard.Unlock()
	response := request.ResponseKind()
	switch q := request.(type) {
	case *kmsg.OffsetCommitRequest:
		r := response.(*kmsg.OffsetCommitResponse)
		for _, t := range q.Topics {
			one := kmsg.OffsetCommitResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
			for _, p := range t.Partitions {
				one.Partitions = append(one.Partitions, kmsg.OffsetCommitResponseTopicPartition{Partition: p.Partition})
			}
			r.Topics = append(r.Topics, one)
		}
	case *kmsg.OffsetFetchRequest:
		r := response.(*kmsg.OffsetFetchResponse)
		for _, g := range q.Groups {
			one := kmsg.OffsetFetchResponseGroup{Group: g.Group}
			if g.Topics == nil {
				g.Topics = []kmsg.OffsetFetchRequestGroupTopic{{Topic: "mine", Partitions: []int32{0}}, {Topic: "theirs", Partitions: []int32{0}}}
			}
			for _, t := range g.Topics {
				topic := kmsg.OffsetFetchResponseGroupTopic{Topic: t.Topic, TopicID: t.TopicID}
				for _, p := range t.Partitions {
					topic.Partitions = append(topic.Partitions, kmsg.OffsetFetchResponseGroupTopicPartition{Partition: p, Offset: 7, Metadata: kmsg.StringPtr("")})
				}
				one.Topics = append(one.Topics, topic)
			}
			r.Groups = append(r.Groups, one)
		}
	case *kmsg.OffsetDeleteRequest:
		r := response.(*kmsg.OffsetDeleteResponse)
		for _, t := range q.Topics {
			r.Topics = append(r.Topics, kmsg.OffsetDeleteResponseTopic{Topic: t.Topic, Partitions: []kmsg.OffsetDeleteResponseTopicPartition{{}}})
		}
	case *kmsg.DescribeGroupsRequest:
		for _, g := range q.Groups {
			one := kmsg.NewDescribeGroupsResponseGroup()
			one.Group = g
			response.(*kmsg.DescribeGroupsResponse).Groups = append(response.(*kmsg.DescribeGroupsResponse).Groups, one)
		}
	case *kmsg.DeleteGroupsRequest:
		for _, g := range q.Groups {
			response.(*kmsg.DeleteGroupsResponse).Groups = append(response.(*kmsg.DeleteGroupsResponse).Groups, kmsg.DeleteGroupsResponseGroup{Group: g})
		}
	case *kmsg.ConsumerGroupDescribeRequest:
		r := response.(*kmsg.ConsumerGroupDescribeResponse)
		for _, g := range q.Groups {
			one := kmsg.NewConsumerGroupDescribeResponseGroup()
			one.Group = g
			member := kmsg.NewConsumerGroupDescribeResponseGroupMember()
			member.Assignment.TopicPartitions = []kmsg.AssignmentTopicPartition{{Topic: strings.TrimPrefix(g, "my-")}}
			one.Members = append(one.Members, member)
			r.Groups = append(r.Groups, one)
		}
	case *kmsg.ListGroupsRequest:
		response.(*kmsg.ListGroupsResponse).Groups = []kmsg.ListGroupsResponseGroup{{Group: "my-mine"}, {Group: "other"}}
	}
	return response
}

// newGroupsRig is a server on which the client may do everything with groups whose name
// begins with "my-" and with the topic "mine", and nothing else.
func newGroupsRig(t *testing.T) (*groupsBroker, *testClient) {
	t.Helper()
	b := &groupsBroker{adminBroker: newAdminBroker()}
	r := newConnRig(t, func(o *Options) { o.Broker, o.Authorize = b, true })
	allow := func(kind kmsg.ACLResourceType, pattern kmsg.ACLResourcePatternType, name string, ops ...kmsg.ACLOperation) (rules []rule) {
		for _, op := range ops {
			rules = append(rules, rule{kind, pattern, name, anonymous, "*", op, kmsg.ACLPermissionTypeAllow})
		}
		return rules
	}
	rules := append(allow(kmsg.ACLResourceTypeGroup, kmsg.ACLResourcePatternTypePrefixed, "my-", kmsg.ACLOperationRead, kmsg.ACLOperationDelete),
		allow(kmsg.ACLResourceTypeTopic, kmsg.ACLResourcePatternTypeLiteral, "mine", kmsg.ACLOperationRead)...)
	if err := r.authorizer.change(t.Context(), rules, nil); err != nil {
		t.Fatal(err)
	}
	r.Serve()
	return b, r.dial()
}

// Requests about groups reach the coordinator as far as the client may make them.
func TestGroupsAuthorization(t *testing.T) {
	b, c := newGroupsRig(t)
	const topicDenied = kerr.TOPIC_AUTHORIZATION_FAILED
	check := func(what string, got, want any) {
		t.Helper()
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	for _, name := range []string{"my-g", "g"} {
		want := kerr.NONE
		if name == "g" {
			want = groupDenied
		}
		join := kmsg.NewPtrJoinGroupRequest()
		join.Group = name
		check("join "+name, ask[*kmsg.JoinGroupResponse](c, join, 9).ErrorCode, want)
		sync := kmsg.NewPtrSyncGroupRequest()
		sync.Group = name
		check("sync "+name, ask[*kmsg.SyncGroupResponse](c, sync, 5).ErrorCode, want)
		beat := kmsg.NewPtrHeartbeatRequest()
		beat.Group = name
		check("heartbeat "+name, ask[*kmsg.HeartbeatResponse](c, beat, 4).ErrorCode, want)
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Group = name
		check("leave "+name, ask[*kmsg.LeaveGroupResponse](c, leave, 5).ErrorCode, want)
		consumer := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		consumer.Group = name
		check("consumer heartbeat "+name, ask[*kmsg.ConsumerGroupHeartbeatResponse](c, consumer, 1).ErrorCode, want)
	}
	if n := len(b.requests()); n != 5 {
		t.Errorf("the coordinator was asked %d times", n)
	}
	consumer := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	consumer.Group, consumer.SubscribedTopicNames = "my-g", []string{"mine", "theirs"}
	check("a subscription to a topic of others", ask[*kmsg.ConsumerGroupHeartbeatResponse](c, consumer, 1).ErrorCode, topicDenied)

	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Group = "my-g"
	for _, topic := range []string{"theirs", "mine", "theirs"} {
		commit.Topics = append(commit.Topics, kmsg.OffsetCommitRequestTopic{Topic: topic, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: 3}}})
	}
	codes := func(r *kmsg.OffsetCommitResponse) (out []int16) {
		for _, topic := range r.Topics {
			out = append(out, topic.Partitions[0].ErrorCode)
		}
		return out
	}
	check("commit", codes(ask[*kmsg.OffsetCommitResponse](c, commit, 9)), []int16{topicDenied, 0, topicDenied})
	commit.Group = "g"
	check("commit of a group of others", codes(ask[*kmsg.OffsetCommitResponse](c, commit, 9)), []int16{groupDenied, groupDenied, groupDenied})

	remove := kmsg.NewPtrOffsetDeleteRequest()
	remove.Group = "my-g"
	for _, topic := range []string{"theirs", "mine"} {
		remove.Topics = append(remove.Topics, kmsg.OffsetDeleteRequestTopic{Topic: topic, Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{}}})
	}
	removed := ask[*kmsg.OffsetDeleteResponse](c, remove, 0)
	check("delete offsets", []int16{removed.Topics[0].Partitions[0].ErrorCode, removed.Topics[1].Partitions[0].ErrorCode}, []int16{topicDenied, kerr.UNKNOWN_TOPIC_OR_PARTITION}) // there is no such topic

	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups, describe.IncludeAuthorizedOperations = []string{"g", "my-g"}, true
	described := ask[*kmsg.DescribeGroupsResponse](c, describe, 6).Groups
	check("describe", []any{described[0].ErrorCode, described[1].ErrorCode, described[1].AuthorizedOperations},
		[]any{groupDenied, 0, 1<<kmsg.ACLOperationRead | 1<<kmsg.ACLOperationDescribe | 1<<kmsg.ACLOperationDelete})
	drop := kmsg.NewPtrDeleteGroupsRequest()
	drop.Groups = []string{"g", "my-g"}
	dropped := ask[*kmsg.DeleteGroupsResponse](c, drop, 2).Groups
	check("delete", []int16{dropped[0].ErrorCode, dropped[1].ErrorCode}, []int16{groupDenied, 0})
	whole := kmsg.NewPtrConsumerGroupDescribeRequest()
	whole.Groups = []string{"g", "my-mine", "my-theirs"}
	seen := ask[*kmsg.ConsumerGroupDescribeResponse](c, whole, 1).Groups
	check("describe consumer groups", []any{seen[0].ErrorCode, seen[1].ErrorCode, len(seen[1].Members), seen[2].ErrorCode, len(seen[2].Members)},
		[]any{groupDenied, 0, 1, topicDenied, 0})
	list := ask[*kmsg.ListGroupsResponse](c, kmsg.NewPtrListGroupsRequest(), 5).Groups
	check("list", []any{len(list), list[0].Group}, []any{1, "my-mine"})
}

// Offsets of all versions: what is asked for is there, and what the client must not see
// is refused, or left out where all are asked for.
func TestGroupsOffsetFetch(t *testing.T) {
	_, c := newGroupsRig(t)
	for version := int16(0); version <= 9; version++ {
		for _, name := range []string{"my-g", "g"} {
			for _, all := range []bool{false, true} {
				if all && version < 2 {
					continue
				}
				q := kmsg.NewPtrOffsetFetchRequest()
				q.Group = name
				group := kmsg.OffsetFetchRequestGroup{Group: name, MemberEpoch: -1}
				for _, topic := range []string{"mine", "theirs"} {
					if !all {
						q.Topics = append(q.Topics, kmsg.OffsetFetchRequestTopic{Topic: topic, Partitions: []int32{5}})
						group.Topics = append(group.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: topic, Partitions: []int32{5}})
					}
				}
				q.Groups = append(q.Groups, group)
				r := ask[*kmsg.OffsetFetchResponse](c, q, version)
				got := fetched(r, version)
				want := "mine=7/0 theirs=-1/29"
				switch {
				case name == "g" && version < 2:
					want = "mine=-1/30 theirs=-1/30"
				case name == "g":
					want = "30"
				case all:
					want = "mine=7/0"
				}
				if got != want {
					t.Errorf("version %d, group %s, all %v: %s, want %s", version, name, all, got, want)
				}
			}
		}
	}
}

// Topics that are given by id are found, as far as there are such and the client may have
// them.
func TestGroupsOffsetsByID(t *testing.T) {
	b, c := newGroupsRig(t)
	ids := []TopicID{{1}, {2}, {3}} // of one that the client may use, one that it may not, and none
	b.mu.Lock()
	b.mu.topics["mine"], b.mu.topics["theirs"] = Topic{Name: "mine", ID: ids[0]}, Topic{Name: "theirs", ID: ids[1]}
	b.mu.Unlock()
	want := map[TopicID]int16{ids[0]: kerr.NONE, ids[1]: kerr.TOPIC_AUTHORIZATION_FAILED, ids[2]: kerr.UNKNOWN_TOPIC_ID}
	commit, fetch := kmsg.NewPtrOffsetCommitRequest(), kmsg.NewPtrOffsetFetchRequest()
	commit.Group = "my-g"
	group := kmsg.OffsetFetchRequestGroup{Group: "my-g", MemberEpoch: -1}
	for _, id := range ids {
		commit.Topics = append(commit.Topics, kmsg.OffsetCommitRequestTopic{TopicID: id, Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Partition: 3}}})
		group.Topics = append(group.Topics, kmsg.OffsetFetchRequestGroupTopic{TopicID: id, Partitions: []int32{3}})
	}
	fetch.Groups = append(fetch.Groups, group)
	committed := map[TopicID]int16{}
	for _, topic := range ask[*kmsg.OffsetCommitResponse](c, commit, offsetsByID).Topics {
		committed[topic.TopicID] = topic.Partitions[0].ErrorCode
	}
	read := map[TopicID]int16{}
	for _, topic := range ask[*kmsg.OffsetFetchResponse](c, fetch, offsetsByID).Groups[0].Topics {
		read[topic.TopicID] = topic.Partitions[0].ErrorCode
	}
	if !maps.Equal(committed, want) || !maps.Equal(read, want) {
		t.Errorf("a commit gets %v, a fetch %v, want %v", committed, read, want)
	}
}

func fetched(r *kmsg.OffsetFetchResponse, version int16) string {
	var parts []string
	add := func(topic string, offset int64, code int16) {
		parts = append(parts, fmt.Sprintf("%s=%d/%d", topic, offset, code))
	}
	if version >= 8 {
		if code := r.Groups[0].ErrorCode; code != 0 {
			return fmt.Sprint(code)
		}
		for _, t := range r.Groups[0].Topics {
			add(t.Topic, t.Partitions[0].Offset, t.Partitions[0].ErrorCode)
		}
		return strings.Join(parts, " ")
	}
	if r.ErrorCode != 0 && version >= 2 {
		return fmt.Sprint(r.ErrorCode)
	}
	for _, t := range r.Topics {
		add(t.Topic, t.Partitions[0].Offset, t.Partitions[0].ErrorCode)
	}
	return strings.Join(parts, " ")
}

// Each key is answered with its own coordinator, in all versions.
func TestGroupsFindCoordinator(t *testing.T) {
	_, c := newGroupsRig(t)
	keys := map[string]string{
		"my-g": "8 eight:2 0", "g": "-1 :-1 30",
	}
	for version := int16(0); version <= 6; version++ {
		for key, want := range keys {
			q := kmsg.NewPtrFindCoordinatorRequest()
			q.CoordinatorKey, q.CoordinatorKeys = key, []string{key}
			r := ask[*kmsg.FindCoordinatorResponse](c, q, version)
			got := fmt.Sprintf("%d %s:%d %d", r.NodeID, r.Host, r.Port, r.ErrorCode)
			if version >= 4 {
				one := r.Coordinators[0]
				got = fmt.Sprintf("%d %s:%d %d", one.NodeID, one.Host, one.Port, one.ErrorCode)
				if one.Key != key {
					t.Errorf("version %d: key %q comes back as %q", version, key, one.Key)
				}
			}
			if got != want {
				t.Errorf("version %d: %s is at %s, want %s", version, key, got, want)
			}
		}
	}
	for kind, want := range map[int8]int16{coordinatorTransaction: kerr.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, coordinatorShare: kerr.INVALID_REQUEST, 9: kerr.INVALID_REQUEST} {
		q := kmsg.NewPtrFindCoordinatorRequest()
		q.CoordinatorType, q.CoordinatorKeys = kind, []string{"my-g"}
		if got := ask[*kmsg.FindCoordinatorResponse](c, q, 6).Coordinators[0].ErrorCode; got != want {
			t.Errorf("kind %d: code %d, want %d", kind, got, want)
		}
	}
}
