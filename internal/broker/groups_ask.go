package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/group"
	"github.com/billetlog/billet/internal/kerr"
	"github.com/billetlog/billet/replication"
	"github.com/billetlog/billet/transport/kafka"
)

// callCoordinate is the kind of call between nodes that carries requests to coordinators.
const callCoordinate uint8 = 1

// Bounds of Ask.
const (
	askPauseMin = 10 * time.Millisecond // between attempts; it doubles
	askPauseMax = 250 * time.Millisecond
	askTogether = 16 // parts of one request that are asked at the same time
)

// errNotNow says that a coordinator could not answer, and that it is worth asking again.
var errNotNow = errors.New("broker: the coordinator cannot answer")

// Ask answers a request that concerns groups, wherever they are coordinated. While there
// is no coordinator, or it cannot answer, it asks again, until ctx ends. Some requests
// may so be carried out twice. A heartbeat that says only what changed is not asked again
// once a coordinator may have it. The request is the coordinator's from then on, even
// after an error.
func (b *Broker) Ask(ctx context.Context, from kafka.Client, request kmsg.Request) (kmsg.Response, error) {
	if q, ok := request.(*kmsg.ListGroupsRequest); ok {
		return again(ctx, func() (kmsg.Response, error) { return b.askAll(ctx, from, q) })
	}
	parts := split(request)
	if parts == nil {
		return b.askOne(ctx, from, request)
	}
	answers, errs := make([]kmsg.Response, len(parts)), make([]error, len(parts))
	var running sync.WaitGroup
	places := make(chan struct{}, askTogether)
	for i, q := range parts {
		places <- struct{}{}
		running.Go(func() {
			answers[i], errs[i] = b.askOne(ctx, from, q)
			<-places
		})
	}
	running.Wait()
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return nil, errs[i]
	}
	return join(request, answers), nil
}

// askOne asks about one group.
func (b *Broker) askOne(ctx context.Context, from kafka.Client, q kmsg.Request) (kmsg.Response, error) {
	name, ok := groupOf(q)
	if !ok {
		return nil, fmt.Errorf("broker: %s is no request about a group", kmsg.NameForKey(q.Key()))
	}
	return again(ctx, func() (kmsg.Response, error) {
		node, err := b.FindCoordinator(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("%w: group %q: %w", errNotNow, name, err)
		}
		r, err := b.askNode(ctx, node, from, q)
		if err != nil {
			return nil, unanswered(q, err)
		}
		if code := codeOf(r); isPassing(code) {
			return nil, unanswered(q, fmt.Errorf("%w: group %q on node %d: code %d", errNotNow, name, node, code))
		}
		return r, nil
	})
}

// unanswered is the error of a request that may have been carried out, and whose answer
// nobody has. The coordinator may have given the member partitions, or taken some, in it:
// it would say nothing of them when it hears the same once more, and so the member has to
// know that it must say everything.
func unanswered(q kmsg.Request, err error) error {
	if h, ok := q.(*kmsg.ConsumerGroupHeartbeatRequest); ok && h.MemberEpoch >= 0 && !group.IsFull(h) {
		return fmt.Errorf("broker: nobody knows what came of a heartbeat of group %q: %v", h.Group, err)
	}
	return err
}

// again calls f until it succeeds, fails for good, or ctx ends.
func again(ctx context.Context, f func() (kmsg.Response, error)) (kmsg.Response, error) {
	for pause := askPauseMin; ; pause = min(2*pause, askPauseMax) {
		r, err := f()
		if ctx.Err() != nil && err != nil {
			return nil, fmt.Errorf("%w, at last: %w", context.Cause(ctx), err)
		}
		if err == nil || !errors.Is(err, errNotNow) {
			return r, err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, fmt.Errorf("%w, at last: %w", context.Cause(ctx), err)
		}
	}
}

// isPassing says whether a code tells to look for the coordinator again.
func isPassing(code int16) bool {
	return code == kerr.COORDINATOR_LOAD_IN_PROGRESS || code == kerr.COORDINATOR_NOT_AVAILABLE || code == kerr.NOT_COORDINATOR
}

// codeOf is the code of an answer about one group, or the first of its parts.
func codeOf(response kmsg.Response) int16 {
	switch r := response.(type) {
	case *kmsg.JoinGroupResponse:
		return r.ErrorCode
	case *kmsg.SyncGroupResponse:
		return r.ErrorCode
	case *kmsg.HeartbeatResponse:
		return r.ErrorCode
	case *kmsg.LeaveGroupResponse:
		return r.ErrorCode
	case *kmsg.ConsumerGroupHeartbeatResponse:
		return r.ErrorCode
	case *kmsg.OffsetDeleteResponse:
		return r.ErrorCode
	case *kmsg.OffsetCommitResponse:
		return commitCode(r)
	case *kmsg.OffsetFetchResponse:
		if len(r.Groups) > 0 {
			return r.Groups[0].ErrorCode
		}
		if r.ErrorCode == kerr.NONE && len(r.Topics) > 0 && len(r.Topics[0].Partitions) > 0 {
			return r.Topics[0].Partitions[0].ErrorCode
		}
		return r.ErrorCode
	case *kmsg.DescribeGroupsResponse:
		if len(r.Groups) > 0 {
			return r.Groups[0].ErrorCode
		}
	case *kmsg.ConsumerGroupDescribeResponse:
		if len(r.Groups) > 0 {
			return r.Groups[0].ErrorCode
		}
	case *kmsg.DeleteGroupsResponse:
		if len(r.Groups) > 0 {
			return r.Groups[0].ErrorCode
		}
	}
	return kerr.NONE
}

// commitCode is the first code that a partition has and that concerns the group.
func commitCode(r *kmsg.OffsetCommitResponse) int16 {
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			if code := r.Topics[i].Partitions[j].ErrorCode; isPassing(code) {
				return code
			}
		}
	}
	return kerr.NONE
}

// askAll lists the groups of all nodes that coordinate any.
func (b *Broker) askAll(ctx context.Context, from kafka.Client, q *kmsg.ListGroupsRequest) (kmsg.Response, error) {
	out := q.ResponseKind().(*kmsg.ListGroupsResponse)
	asked, seen := map[int32]bool{}, map[string]bool{}
	for n := range b.groups.count() {
		node, _ := b.Leader(OffsetsTopic, n)
		if node < 0 {
			return nil, fmt.Errorf("%w: nobody is known to lead %s-%d", errNotNow, OffsetsTopic, n)
		}
		if asked[node] {
			continue
		}
		asked[node] = true
		part := *q
		answer, err := b.askNode(ctx, node, from, &part)
		if err != nil {
			return nil, err
		}
		r := answer.(*kmsg.ListGroupsResponse)
		if isPassing(r.ErrorCode) {
			return nil, fmt.Errorf("%w: node %d: code %d", errNotNow, node, r.ErrorCode)
		}
		for _, one := range r.Groups {
			if !seen[one.Group] {
				seen[one.Group] = true
				out.Groups = append(out.Groups, one)
			}
		}
	}
	return out, nil
}

// askNode has the coordinators of a node answer.
func (b *Broker) askNode(ctx context.Context, node int32, from kafka.Client, q kmsg.Request) (kmsg.Response, error) {
	if node == b.opts.Self {
		return b.Coordinate(ctx, from, q), nil
	}
	payload, err := b.node.Call(ctx, node, callCoordinate, appendForwarded(nil, from, q))
	if errors.Is(err, replication.ErrTooLarge) {
		return nil, err
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNotNow, err)
	}
	r := q.ResponseKind()
	if err := r.ReadFrom(payload); err != nil {
		return nil, fmt.Errorf("broker: the answer of node %d to %s: %w", node, kmsg.NameForKey(q.Key()), err)
	}
	return r, nil
}

// serveForwarded answers what other nodes pass on.
func (b *Broker) serveForwarded(ctx context.Context, _ int32, payload []byte) ([]byte, error) {
	from, q, err := readForwarded(payload)
	if err != nil {
		return nil, err
	}
	return b.Coordinate(ctx, from, q).AppendTo(nil), nil
}

// A request on its way to another node:
//
//	layout 1 | key 2 | version 2 | size of id 2 | id | size of host 2 | host | request
//
// The answer is the response alone, in the request's version.
const (
	forwardedLayout  = 1
	forwardedNameMax = 4 << 10 // bytes of id and host
)

func appendForwarded(dst []byte, from kafka.Client, q kmsg.Request) []byte {
	dst = append(dst, forwardedLayout)
	dst = binary.BigEndian.AppendUint16(dst, uint16(q.Key()))
	dst = binary.BigEndian.AppendUint16(dst, uint16(q.GetVersion()))
	for _, s := range []string{from.ID, from.Host} {
		s = s[:min(len(s), forwardedNameMax)]
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(s)))
		dst = append(dst, s...)
	}
	return q.AppendTo(dst)
}

var errForwarded = errors.New("broker: a request that was passed on cannot be read")

func readForwarded(b []byte) (from kafka.Client, q kmsg.Request, err error) {
	if len(b) < 5 || b[0] != forwardedLayout {
		return from, nil, fmt.Errorf("%w: its layout is not known", errForwarded)
	}
	key, version := int16(binary.BigEndian.Uint16(b[1:])), int16(binary.BigEndian.Uint16(b[3:]))
	b = b[5:]
	for _, s := range []*string{&from.ID, &from.Host} {
		if len(b) < 2 || len(b)-2 < int(binary.BigEndian.Uint16(b)) {
			return from, nil, fmt.Errorf("%w: it ends early", errForwarded)
		}
		n := int(binary.BigEndian.Uint16(b))
		*s, b = string(b[2:2+n]), b[2+n:]
	}
	if !isForGroups(key) {
		return from, nil, fmt.Errorf("%w: key %d is not one of groups", errForwarded, key)
	}
	q = kmsg.RequestForKey(key)
	if version < 0 || version > q.MaxVersion() {
		return from, nil, fmt.Errorf("%w: version %d of %s", errForwarded, version, kmsg.NameForKey(key))
	}
	q.SetVersion(version)
	if err := q.ReadFrom(b); err != nil {
		return from, nil, fmt.Errorf("%w: %s version %d: %w", errForwarded, kmsg.NameForKey(key), version, err)
	}
	return from, q, nil
}

// isForGroups says whether coordinators take requests of a key.
func isForGroups(key int16) bool {
	switch kmsg.Key(key) {
	case kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.LeaveGroup, kmsg.OffsetCommit, kmsg.OffsetFetch, kmsg.OffsetDelete,
		kmsg.ListGroups, kmsg.DescribeGroups, kmsg.DeleteGroups, kmsg.ConsumerGroupHeartbeat, kmsg.ConsumerGroupDescribe:
		return true
	}
	return false
}
