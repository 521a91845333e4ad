package kafka

import "github.com/twmb/franz-go/pkg/kmsg"

// DeleteGroups, versions 0 to 2: groups without members, with their offsets. Needs Delete
// on each group.
func (c *call) deleteGroups(q *kmsg.DeleteGroupsRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.DeleteGroupsResponse)
	part := *q
	part.Groups = only(q.Groups, func(name *string) bool { return c.mayUse(kmsg.ACLOperationDelete, *name) })
	taken := c.coordinate(&part).(*kmsg.DeleteGroupsResponse).Groups
	for _, name := range q.Groups {
		one := kmsg.NewDeleteGroupsResponseGroup()
		one.Group, one.ErrorCode = name, groupDenied
		if len(taken) > 0 && c.mayUse(kmsg.ACLOperationDelete, name) {
			one, taken = taken[0], taken[1:]
		}
		r.Groups = append(r.Groups, one)
	}
	return r
}
