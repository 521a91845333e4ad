package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// DeleteAcls, versions 0 to 3. Takes away the access rules that any of the filters
// matches, together. Version 0 knows literal names only.
func (c *call) deleteACLs(q *kmsg.DeleteACLsRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.DeleteACLsResponse)
	r.Results = make([]kmsg.DeleteACLsResponseResult, len(q.Filters))
	refuse := func(code int16, message *string) kmsg.Response {
		for i := range r.Results {
			r.Results[i] = kmsg.DeleteACLsResponseResult{ErrorCode: code, ErrorMessage: message}
		}
		return r
	}
	if code, message := c.mayHandleRules(kmsg.ACLOperationAlter); code != kerr.NONE {
		return refuse(code, message)
	}
	a := c.conn.server.authorizer
	all := a.rules().all
	var remove []rule
	for i := range q.Filters {
		f := &q.Filters[i]
		filter := ruleFilter{f.ResourceType, f.ResourcePatternType, f.ResourceName, f.Principal, f.Host, f.Operation, f.PermissionType}
		if !filter.known() {
			r.Results[i].ErrorCode, r.Results[i].ErrorMessage = kerr.INVALID_REQUEST, new("the filter has a value that is not known")
			continue
		}
		for j := range all {
			x := &all[j]
			if !filter.matches(x) {
				continue
			}
			remove = append(remove, *x)
			gone := kmsg.NewDeleteACLsResponseResultMatchingACL()
			gone.ResourceType, gone.ResourceName, gone.ResourcePatternType = x.kind, x.name, x.pattern
			gone.Principal, gone.Host, gone.Operation, gone.PermissionType = x.principal, x.host, x.operation, x.permission
			r.Results[i].MatchingACLs = append(r.Results[i].MatchingACLs, gone)
		}
	}
	if code, message := c.code(a.change(c.ctx, nil, remove)); code != kerr.NONE {
		return refuse(code, message)
	}
	return r
}
