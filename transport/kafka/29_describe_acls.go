package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// noAuthorizer is what clients are told who ask about rules where none count.
const noAuthorizer = "access rules do not count on this node: it was started without them"

// DescribeAcls, versions 0 to 3. Lists the access rules that a filter matches, by
// resource. Version 0 knows literal names only.
func (c *call) describeACLs(q *kmsg.DescribeACLsRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.DescribeACLsResponse)
	code, message := c.mayHandleRules(kmsg.ACLOperationDescribe)
	filter := ruleFilter{q.ResourceType, q.ResourcePatternType, q.ResourceName, q.Principal, q.Host, q.Operation, q.PermissionType}
	if code == kerr.NONE && !filter.known() {
		code, message = kerr.INVALID_REQUEST, new("the filter has a value that is not known")
	}
	if code != kerr.NONE {
		r.ErrorCode, r.ErrorMessage = code, message
		return r
	}
	type place struct {
		resource
		pattern kmsg.ACLResourcePatternType
	}
	at := map[place]int{}
	all := c.conn.server.authorizer.rules().all
	for i := range all {
		x := &all[i]
		if !filter.matches(x) {
			continue
		}
		p := place{resource{x.kind, x.name}, x.pattern}
		n, ok := at[p]
		if !ok {
			n = len(r.Resources)
			at[p] = n
			found := kmsg.NewDescribeACLsResponseResource()
			found.ResourceType, found.ResourceName, found.ResourcePatternType = x.kind, x.name, x.pattern
			r.Resources = append(r.Resources, found)
		}
		entry := kmsg.NewDescribeACLsResponseResourceACL()
		entry.Principal, entry.Host, entry.Operation, entry.PermissionType = x.principal, x.host, x.operation, x.permission
		r.Resources[n].ACLs = append(r.Resources[n].ACLs, entry)
	}
	return r
}

// mayHandleRules says whether the client may list or change access rules.
func (c *call) mayHandleRules(op kmsg.ACLOperation) (code int16, message *string) {
	switch {
	case !c.allowed(op, kmsg.ACLResourceTypeCluster, clusterName):
		return kerr.CLUSTER_AUTHORIZATION_FAILED, new("access rules of the cluster are not for this client")
	case c.conn.server.authorizer == nil:
		return kerr.SECURITY_DISABLED, new(noAuthorizer)
	}
	return kerr.NONE, nil
}
