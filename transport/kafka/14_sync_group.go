package kafka

import "github.com/twmb/franz-go/pkg/kmsg"

// SyncGroup, versions 0 to 5. It waits until the leader of the group has told who gets
// what. Needs Read on the group.
func (c *call) syncGroup(q *kmsg.SyncGroupRequest) kmsg.Response {
	if c.mayUse(kmsg.ACLOperationRead, q.Group) {
		return c.coordinate(q)
	}
	r := q.ResponseKind().(*kmsg.SyncGroupResponse)
	r.ErrorCode, r.MemberAssignment = groupDenied, []byte{}
	return r
}
