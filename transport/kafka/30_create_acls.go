package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// CreateAcls, versions 0 to 3. Adds access rules; those that are good are added
// together. A rule that is there already is no error. Version 0 knows literal names only.
//
// Gap: there are at most 10,000 rules.
func (c *call) createACLs(q *kmsg.CreateACLsRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.CreateACLsResponse)
	r.Results = make([]kmsg.CreateACLsResponseResult, len(q.Creations))
	refuse := func(code int16, message *string) {
		for i := range r.Results {
			if r.Results[i].ErrorCode == kerr.NONE {
				r.Results[i].ErrorCode, r.Results[i].ErrorMessage = code, message
			}
		}
	}
	if code, message := c.mayHandleRules(kmsg.ACLOperationAlter); code != kerr.NONE {
		refuse(code, message)
		return r
	}
	a := c.conn.server.authorizer
	var add []rule
	for i := range q.Creations {
		x := &q.Creations[i]
		made := rule{kind: x.ResourceType, pattern: x.ResourcePatternType, name: x.ResourceName, principal: x.Principal,
			host: x.Host, operation: x.Operation, permission: x.PermissionType}
		if err := made.check(); err != nil {
			r.Results[i].ErrorCode, r.Results[i].ErrorMessage = kerr.INVALID_REQUEST, new(err.Error())
			continue
		}
		add = append(add, made)
	}
	if n := len(a.rules().all) + len(add); n > rulesMax && len(add) > 0 {
		refuse(kerr.INVALID_REQUEST, &kerr.Errorf(kerr.INVALID_REQUEST, "%d access rules: at most %d are possible", n, rulesMax).Message)
		return r
	}
	if code, message := c.code(a.change(c.ctx, add, nil)); code != kerr.NONE {
		refuse(code, message)
	}
	return r
}
