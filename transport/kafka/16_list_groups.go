package kafka

import "github.com/twmb/franz-go/pkg/kmsg"

// ListGroups, versions 0 to 5: the groups that this node coordinates. Whoever may
// Describe the cluster sees all, others those that they may Describe.
func (c *call) listGroups(q *kmsg.ListGroupsRequest) kmsg.Response {
	r := c.coordinate(q).(*kmsg.ListGroupsResponse)
	if !c.allowed(kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeCluster, clusterName) {
		r.Groups = only(r.Groups, func(g *kmsg.ListGroupsResponseGroup) bool { return c.mayUse(kmsg.ACLOperationDescribe, g.Group) })
	}
	return r
}
