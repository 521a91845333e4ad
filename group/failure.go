package group

import "github.com/twmb/franz-go/pkg/kmsg"

// Failure is the response to a request that says nothing but the error, in all the
// places where clients of its version look.
func Failure(request kmsg.Request, code int16) kmsg.Response {
	body := request.ResponseKind()
	switch r := body.(type) {
	case *kmsg.JoinGroupResponse:
		r.ErrorCode, r.Generation = code, -1
		r.MemberID = request.(*kmsg.JoinGroupRequest).MemberID
	case *kmsg.SyncGroupResponse:
		r.ErrorCode = code
		r.MemberAssignment = []byte{}
	case *kmsg.HeartbeatResponse:
		r.ErrorCode = code
	case *kmsg.LeaveGroupResponse:
		r.ErrorCode = code
	case *kmsg.ConsumerGroupHeartbeatResponse:
		r.ErrorCode = code
	case *kmsg.OffsetCommitResponse:
		r.Topics = commitResults(request.(*kmsg.OffsetCommitRequest), code)
	case *kmsg.OffsetFetchResponse:
		fetchFailure(request.(*kmsg.OffsetFetchRequest), r, code)
	case *kmsg.OffsetDeleteResponse:
		r.ErrorCode = code
	case *kmsg.ListGroupsResponse:
		r.ErrorCode = code
	case *kmsg.DescribeGroupsResponse:
		for _, id := range request.(*kmsg.DescribeGroupsRequest).Groups {
			one := kmsg.NewDescribeGroupsResponseGroup()
			one.Group, one.ErrorCode = id, code
			r.Groups = append(r.Groups, one)
		}
	case *kmsg.ConsumerGroupDescribeResponse:
		for _, id := range request.(*kmsg.ConsumerGroupDescribeRequest).Groups {
			one := kmsg.NewConsumerGroupDescribeResponseGroup()
			one.Group, one.ErrorCode = id, code
			r.Groups = append(r.Groups, one)
		}
	case *kmsg.DeleteGroupsResponse:
		for _, id := range request.(*kmsg.DeleteGroupsRequest).Groups {
			one := kmsg.NewDeleteGroupsResponseGroup()
			one.Group, one.ErrorCode = id, code
			r.Groups = append(r.Groups, one)
		}
	}
	return body
}

// fetchFailure puts a code where a fetch of offsets has it: at partitions in v0 and
// v1, once up to v7, and at each group from v8.
func fetchFailure(request *kmsg.OffsetFetchRequest, r *kmsg.OffsetFetchResponse, code int16) {
	switch {
	case request.Version >= 8:
		for i := range request.Groups {
			one := kmsg.NewOffsetFetchResponseGroup()
			one.Group, one.ErrorCode = request.Groups[i].Group, code
			r.Groups = append(r.Groups, one)
		}
	case request.Version >= 2:
		r.ErrorCode = code
	default:
		for i := range request.Topics {
			topic := kmsg.NewOffsetFetchResponseTopic()
			topic.Topic = request.Topics[i].Topic
			for _, p := range request.Topics[i].Partitions {
				one := kmsg.NewOffsetFetchResponseTopicPartition()
				one.Partition, one.Offset, one.LeaderEpoch, one.ErrorCode = p, -1, -1, code
				one.Metadata = kmsg.StringPtr("")
				topic.Partitions = append(topic.Partitions, one)
			}
			r.Topics = append(r.Topics, topic)
		}
	}
}

// commitResults gives all partitions of a commit the same code.
func commitResults(request *kmsg.OffsetCommitRequest, code int16) []kmsg.OffsetCommitResponseTopic {
	topics := make([]kmsg.OffsetCommitResponseTopic, 0, len(request.Topics))
	for i := range request.Topics {
		topic := kmsg.NewOffsetCommitResponseTopic()
		topic.Topic, topic.TopicID = request.Topics[i].Topic, request.Topics[i].TopicID
		for j := range request.Topics[i].Partitions {
			one := kmsg.NewOffsetCommitResponseTopicPartition()
			one.Partition, one.ErrorCode = request.Topics[i].Partitions[j].Partition, code
			topic.Partitions = append(topic.Partitions, one)
		}
		topics = append(topics, topic)
	}
	return topics
}
