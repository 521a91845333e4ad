package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// DescribeGroups, versions 0 to 6, of classic groups. One that does not exist is Dead up
// to version 5, and GROUP_ID_NOT_FOUND after it. Needs Describe on each group.
func (c *call) describeGroups(q *kmsg.DescribeGroupsRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.DescribeGroupsResponse)
	part := *q
	part.Groups = only(q.Groups, func(name *string) bool { return c.mayUse(kmsg.ACLOperationDescribe, *name) })
	taken := c.coordinate(&part).(*kmsg.DescribeGroupsResponse).Groups
	for _, name := range q.Groups {
		if len(taken) > 0 && c.mayUse(kmsg.ACLOperationDescribe, name) {
			one := taken[0]
			taken = taken[1:]
			if q.IncludeAuthorizedOperations && one.ErrorCode == kerr.NONE {
				one.AuthorizedOperations = c.operations(kmsg.ACLResourceTypeGroup, name)
			}
			r.Groups = append(r.Groups, one)
			continue
		}
		one := kmsg.NewDescribeGroupsResponseGroup()
		one.Group, one.ErrorCode = name, groupDenied
		r.Groups = append(r.Groups, one)
	}
	return r
}
