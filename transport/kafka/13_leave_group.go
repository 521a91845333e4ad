package kafka

import "github.com/twmb/franz-go/pkg/kmsg"

// LeaveGroup, versions 0 to 5. Needs Read on the group.
func (c *call) leaveGroup(q *kmsg.LeaveGroupRequest) kmsg.Response {
	if c.mayUse(kmsg.ACLOperationRead, q.Group) {
		return c.coordinate(q)
	}
	r := q.ResponseKind().(*kmsg.LeaveGroupResponse)
	r.ErrorCode = groupDenied
	return r
}
