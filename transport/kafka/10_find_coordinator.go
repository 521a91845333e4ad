package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// The kinds of coordinators.
const (
	coordinatorGroup int8 = iota
	coordinatorTransaction
	coordinatorShare
)

// coordinatorKeysMax bounds the keys of a request.
const coordinatorKeysMax = 10_000

// FindCoordinator, versions 0 to 6. The first request makes the topic of the groups, and
// waits for that. From version 4 on it takes many keys, and each answer has its key.
// Needs Describe on the group, or on the transactional id.
//
// Gaps: there are no transactions and no share groups. Transactional ids are answered
// COORDINATOR_NOT_AVAILABLE, share groups INVALID_REQUEST, as Kafka does where they are
// turned off.
func (c *call) findCoordinator(q *kmsg.FindCoordinatorRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.FindCoordinatorResponse)
	if q.Version < 4 {
		one := c.coordinatorOf(q.CoordinatorType, q.CoordinatorKey)
		r.ErrorCode, r.ErrorMessage, r.NodeID, r.Host, r.Port = one.ErrorCode, one.ErrorMessage, one.NodeID, one.Host, one.Port
		return r
	}
	for i, key := range q.CoordinatorKeys {
		if i == coordinatorKeysMax {
			one := noCoordinator(key, kerr.INVALID_REQUEST, "there are more keys than a request may have")
			r.Coordinators = append(r.Coordinators, one)
			break
		}
		r.Coordinators = append(r.Coordinators, c.coordinatorOf(q.CoordinatorType, key))
	}
	return r
}

// coordinatorOf finds one.
func (c *call) coordinatorOf(kind int8, key string) kmsg.FindCoordinatorResponseCoordinator {
	switch {
	case kind == coordinatorGroup && !c.mayUse(kmsg.ACLOperationDescribe, key):
		return noCoordinator(key, groupDenied, "the group may not be described by this client")
	case kind == coordinatorTransaction && !c.allowed(kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeTransactionalId, key):
		return noCoordinator(key, kerr.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "the transactional id may not be described by this client")
	case kind == coordinatorTransaction:
		return noCoordinator(key, kerr.COORDINATOR_NOT_AVAILABLE, "there are no transactions")
	case kind == coordinatorShare:
		return noCoordinator(key, kerr.INVALID_REQUEST, "there are no share groups")
	case kind != coordinatorGroup:
		return noCoordinator(key, kerr.INVALID_REQUEST, "the kind of coordinator is not known")
	}
	id, err := c.broker().FindCoordinator(c.ctx, key)
	if err != nil {
		code, message := c.code(err)
		one := noCoordinator(key, code, "")
		one.ErrorMessage = message
		return one
	}
	for _, n := range c.broker().Nodes(c.conn.listener.opts.Name) {
		if n.ID == id {
			one := kmsg.NewFindCoordinatorResponseCoordinator()
			one.Key, one.NodeID, one.Host, one.Port = key, n.ID, n.Host, n.Port
			return one
		}
	}
	return noCoordinator(key, kerr.COORDINATOR_NOT_AVAILABLE, "the coordinator's node has no listener of this name")
}

func noCoordinator(key string, code int16, message string) kmsg.FindCoordinatorResponseCoordinator {
	one := kmsg.NewFindCoordinatorResponseCoordinator()
	one.Key, one.NodeID, one.Port, one.ErrorCode, one.ErrorMessage = key, -1, -1, code, &message
	return one
}
