package broker

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/group"
	"github.com/billetlog/billet/internal/kerr"
	"github.com/billetlog/billet/transport/kafka"
)

// Coordinate answers a request that concerns groups, as far as they are coordinated here.
func (b *Broker) Coordinate(ctx context.Context, from kafka.Client, request kmsg.Request) kmsg.Response {
	switch q := request.(type) {
	case *kmsg.ListGroupsRequest:
		return b.groups.list(ctx, from, q)
	case *kmsg.OffsetCommitRequest:
		return b.groups.commit(ctx, from, q)
	}
	if parts := split(request); parts != nil {
		return join(request, b.groups.each(ctx, from, parts))
	}
	return b.groups.single(ctx, from, request)
}

// groupOf is the one group that a request is about.
func groupOf(request kmsg.Request) (name string, ok bool) {
	switch q := request.(type) {
	case *kmsg.JoinGroupRequest:
		return q.Group, true
	case *kmsg.SyncGroupRequest:
		return q.Group, true
	case *kmsg.HeartbeatRequest:
		return q.Group, true
	case *kmsg.LeaveGroupRequest:
		return q.Group, true
	case *kmsg.OffsetCommitRequest:
		return q.Group, true
	case *kmsg.OffsetFetchRequest:
		if len(q.Groups) == 1 && q.Version >= 8 {
			return q.Groups[0].Group, true
		}
		return q.Group, q.Version < 8
	case *kmsg.OffsetDeleteRequest:
		return q.Group, true
	case *kmsg.ConsumerGroupHeartbeatRequest:
		return q.Group, true
	case *kmsg.DescribeGroupsRequest:
		return oneOf(q.Groups)
	case *kmsg.ConsumerGroupDescribeRequest:
		return oneOf(q.Groups)
	case *kmsg.DeleteGroupsRequest:
		return oneOf(q.Groups)
	}
	return "", false
}

func oneOf(names []string) (string, bool) {
	if len(names) != 1 {
		return "", false
	}
	return names[0], true
}

// locate finds the coordinator of a request about one group; nil when it is not here.
func (g *groups) locate(request kmsg.Request) *coordinator {
	name, ok := groupOf(request)
	n := g.count()
	if !ok || n == 0 {
		return nil
	}
	return g.at(partitionOf(name, n))
}

// single answers a request about one group.
func (g *groups) single(ctx context.Context, from kafka.Client, request kmsg.Request) kmsg.Response {
	if name, ok := groupOf(request); ok && name == "" {
		if request.Key() == kmsg.ConsumerGroupHeartbeat.Int16() {
			return group.Failure(request, kerr.INVALID_REQUEST)
		}
		return group.Failure(request, kerr.INVALID_GROUP_ID)
	}
	if c := g.locate(request); c != nil {
		return c.ask(ctx, from, request)
	}
	return group.Failure(request, kerr.NOT_COORDINATOR)
}

// each answers requests about one group each, side by side.
func (g *groups) each(ctx context.Context, from kafka.Client, requests []kmsg.Request) []kmsg.Response {
	waits := make([]*asked, len(requests))
	answers := make([]kmsg.Response, len(requests))
	for i, q := range requests {
		name, _ := groupOf(q)
		if c := g.locate(q); c != nil && name != "" {
			waits[i] = c.submit(ctx, from, q)
		} else {
			answers[i] = g.single(ctx, from, q)
		}
	}
	for i, a := range waits {
		if a != nil {
			answers[i] = a.await(ctx)
		}
	}
	return answers
}

// split makes a request about each group of one about several, or about none; nil when
// it is about one.
func split(request kmsg.Request) []kmsg.Request {
	parts := []kmsg.Request{}
	switch q := request.(type) {
	case *kmsg.OffsetFetchRequest:
		if q.Version < 8 || len(q.Groups) == 1 {
			return nil
		}
		for _, one := range q.Groups {
			part := *q
			part.Groups = []kmsg.OffsetFetchRequestGroup{one}
			parts = append(parts, &part)
		}
	case *kmsg.DescribeGroupsRequest:
		return splitNames(q.Groups, func(one []string) kmsg.Request {
			part := *q
			part.Groups = one
			return &part
		})
	case *kmsg.ConsumerGroupDescribeRequest:
		return splitNames(q.Groups, func(one []string) kmsg.Request {
			part := *q
			part.Groups = one
			return &part
		})
	case *kmsg.DeleteGroupsRequest:
		return splitNames(q.Groups, func(one []string) kmsg.Request {
			part := *q
			part.Groups = one
			return &part
		})
	default:
		return nil
	}
	return parts
}

// splitNames makes a request of each name, unless there is one.
func splitNames(names []string, with func(one []string) kmsg.Request) []kmsg.Request {
	if len(names) == 1 {
		return nil
	}
	parts := make([]kmsg.Request, 0, len(names))
	for _, name := range names {
		parts = append(parts, with([]string{name}))
	}
	return parts
}

// join makes one answer of those to the parts of a request, in their order.
func join(request kmsg.Request, answers []kmsg.Response) kmsg.Response {
	out := request.ResponseKind()
	for _, a := range answers {
		switch r := out.(type) {
		case *kmsg.OffsetFetchResponse:
			r.Groups = append(r.Groups, a.(*kmsg.OffsetFetchResponse).Groups...)
		case *kmsg.DescribeGroupsResponse:
			r.Groups = append(r.Groups, a.(*kmsg.DescribeGroupsResponse).Groups...)
		case *kmsg.ConsumerGroupDescribeResponse:
			r.Groups = append(r.Groups, a.(*kmsg.ConsumerGroupDescribeResponse).Groups...)
		case *kmsg.DeleteGroupsResponse:
			r.Groups = append(r.Groups, a.(*kmsg.DeleteGroupsResponse).Groups...)
		}
	}
	return out
}

// list asks all coordinators here. One that reads its log makes the answer an error, as
// it would not be complete.
func (g *groups) list(ctx context.Context, from kafka.Client, q *kmsg.ListGroupsRequest) kmsg.Response {
	var waits []*asked
	for n := range g.count() {
		if c := g.at(n); c != nil {
			part := *q
			waits = append(waits, c.submit(ctx, from, &part))
		}
	}
	out := q.ResponseKind().(*kmsg.ListGroupsResponse)
	for _, a := range waits {
		r := a.await(ctx).(*kmsg.ListGroupsResponse)
		switch r.ErrorCode {
		case kerr.NONE:
			out.Groups = append(out.Groups, r.Groups...)
		case kerr.NOT_COORDINATOR:
		default:
			out.ErrorCode, out.Groups = r.ErrorCode, nil
			return out
		}
	}
	return out
}

// commit takes offsets of partitions that there are, and refuses the others.
func (g *groups) commit(ctx context.Context, from kafka.Client, q *kmsg.OffsetCommitRequest) kmsg.Response {
	now := g.env.topics.get()
	known := *q
	known.Topics = nil
	out := group.Failure(q, kerr.UNKNOWN_TOPIC_OR_PARTITION).(*kmsg.OffsetCommitResponse)
	var codes []*int16 // of the partitions that there are
	missing := false
	for i, topic := range q.Topics {
		kept := topic
		kept.Partitions = nil
		name, code := now.nameFor(q, i)
		for j, p := range topic.Partitions {
			if code == kerr.NONE && now.has(name, p.Partition) {
				kept.Partitions = append(kept.Partitions, p)
				codes = append(codes, &out.Topics[i].Partitions[j].ErrorCode)
				continue
			}
			if missing = true; code != kerr.NONE {
				out.Topics[i].Partitions[j].ErrorCode = code
			}
		}
		if len(kept.Partitions) > 0 {
			known.Topics = append(known.Topics, kept)
		}
	}
	if !missing {
		return g.single(ctx, from, q)
	}
	if len(known.Topics) == 0 {
		return out
	}
	for _, topic := range g.single(ctx, from, &known).(*kmsg.OffsetCommitResponse).Topics {
		for _, p := range topic.Partitions {
			*codes[0], codes = p.ErrorCode, codes[1:]
		}
	}
	return out
}
