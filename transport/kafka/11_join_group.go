package kafka

import "github.com/twmb/franz-go/pkg/kmsg"

// JoinGroup, versions 0 to 9. It waits for the other members, for as long as the group
// gives them, and its connection with it. Needs Read on the group.
func (c *call) joinGroup(q *kmsg.JoinGroupRequest) kmsg.Response {
	if c.mayUse(kmsg.ACLOperationRead, q.Group) {
		return c.coordinate(q)
	}
	r := q.ResponseKind().(*kmsg.JoinGroupResponse)
	r.ErrorCode, r.Generation, r.MemberID = groupDenied, -1, q.MemberID
	return r
}
