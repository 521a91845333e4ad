package kafka

import "github.com/twmb/franz-go/pkg/kmsg"

// Heartbeat, versions 0 to 4. Needs Read on the group.
func (c *call) heartbeat(q *kmsg.HeartbeatRequest) kmsg.Response {
	if c.mayUse(kmsg.ACLOperationRead, q.Group) {
		return c.coordinate(q)
	}
	r := q.ResponseKind().(*kmsg.HeartbeatResponse)
	r.ErrorCode = groupDenied
	return r
}
