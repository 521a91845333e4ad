package kafka

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What stands for anything and anybody in rules.
const (
	anything = "*"
	anybody  = userPrefix + anything
)

// rule is an access rule, an "ACL": who may, or may not, do what to which resources.
type rule struct {
	kind       kmsg.ACLResourceType
	pattern    kmsg.ACLResourcePatternType // literal or prefixed
	name       string
	principal  string // "User:name", or anybody
	host       string // an address, or anything
	operation  kmsg.ACLOperation
	permission kmsg.ACLPermissionType
}

// resource is what rules are found by.
type resource struct {
	kind kmsg.ACLResourceType
	name string
}

// ruleSet finds rules, and decides as Kafka's StandardAuthorizer does. It is never
// changed. It has no clock, no lock and does no I/O.
type ruleSet struct {
	all      []rule
	literal  map[resource][]rule
	prefixed map[resource][]rule
	// lengths are those of the prefixes of a kind, so that finding those of a name takes
	// a look-up for each.
	lengths map[kmsg.ACLResourceType][]int
}

func newRuleSet(rules []rule) *ruleSet {
	s := &ruleSet{all: rules, literal: map[resource][]rule{}, prefixed: map[resource][]rule{}, lengths: map[kmsg.ACLResourceType][]int{}}
	for _, r := range rules {
		r.host = plainHost(r.host)
		at := resource{r.kind, r.name}
		if r.pattern == kmsg.ACLResourcePatternTypePrefixed {
			s.prefixed[at] = append(s.prefixed[at], r)
			if !slices.Contains(s.lengths[r.kind], len(r.name)) {
				s.lengths[r.kind] = append(s.lengths[r.kind], len(r.name))
			}
			continue
		}
		s.literal[at] = append(s.literal[at], r)
	}
	return s
}

// plainHost writes an address in one way.
func plainHost(host string) string {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap().WithZone("").String()
	}
	return host
}

// actor is who wants to do something.
type actor struct{ principal, host string }

// allowed decides. A rule that denies counts more than all that allow, and without a
// rule that allows the answer is no.
func (s *ruleSet) allowed(who actor, op kmsg.ACLOperation, kind kmsg.ACLResourceType, name string) bool {
	v := decide(s.literal[resource{kind, name}], who, op)
	v = max(v, decide(s.literal[resource{kind, anything}], who, op))
	for _, n := range s.lengths[kind] {
		if n <= len(name) {
			v = max(v, decide(s.prefixed[resource{kind, name[:n]}], who, op))
		}
	}
	return v == allows
}

// verdict is what rules say; the highest counts.
type verdict int

const (
	silent verdict = iota
	allows
	denies
)

func decide(rules []rule, who actor, op kmsg.ACLOperation) verdict {
	v := silent
	for i := range rules {
		v = max(v, rules[i].verdict(who, op))
	}
	return v
}

// verdict is what the rule says about an operation on a resource that it is about.
func (r *rule) verdict(who actor, op kmsg.ACLOperation) verdict {
	switch {
	case !r.concerns(who):
		return silent
	case r.permission == kmsg.ACLPermissionTypeDeny && (r.operation == op || r.operation == kmsg.ACLOperationAll):
		return denies
	case r.permission == kmsg.ACLPermissionTypeAllow && implies(r.operation, op):
		return allows
	}
	return silent
}

func (r *rule) concerns(who actor) bool {
	return (r.principal == who.principal || r.principal == anybody) && (r.host == anything || r.host == who.host)
}

// implies says whether a rule that allows one operation allows another.
func implies(given, op kmsg.ACLOperation) bool {
	if given == op || given == kmsg.ACLOperationAll {
		return true
	}
	switch op {
	case kmsg.ACLOperationDescribe:
		return given == kmsg.ACLOperationRead || given == kmsg.ACLOperationWrite || given == kmsg.ACLOperationDelete || given == kmsg.ACLOperationAlter
	case kmsg.ACLOperationDescribeConfigs:
		return given == kmsg.ACLOperationAlterConfigs
	}
	return false
}

// allowedAny says whether there may be a resource of a kind on which the operation is
// allowed: a rule that allows, and none that denies all that it is about.
func (s *ruleSet) allowedAny(who actor, op kmsg.ACLOperation, kind kmsg.ACLResourceType) bool {
	same := func(r *rule, permission kmsg.ACLPermissionType) bool {
		return r.kind == kind && r.permission == permission && (r.operation == op || r.operation == kmsg.ACLOperationAll)
	}
	var denied []*rule
	for i := range s.all {
		r := &s.all[i]
		if same(r, kmsg.ACLPermissionTypeDeny) && r.withPlainHost().concerns(who) {
			denied = append(denied, r)
		}
	}
	for i := range s.all {
		r := &s.all[i]
		if same(r, kmsg.ACLPermissionTypeAllow) && r.withPlainHost().concerns(who) &&
			!slices.ContainsFunc(denied, func(d *rule) bool { return d.covers(r) }) {
			return true
		}
	}
	return false
}

func (r *rule) withPlainHost() *rule {
	plain := *r
	plain.host = plainHost(r.host)
	return &plain
}

// covers says whether a rule is about all resources that another one is about.
func (r *rule) covers(other *rule) bool {
	if r.pattern == kmsg.ACLResourcePatternTypePrefixed {
		return strings.HasPrefix(other.name, r.name) && !other.isAboutAll()
	}
	return r.isAboutAll() || r.name == other.name && other.pattern == r.pattern
}

func (r *rule) isAboutAll() bool {
	return r.pattern == kmsg.ACLResourcePatternTypeLiteral && r.name == anything
}

// ruleFilter picks rules; nil, Any and, for patterns, Match are those of Kafka.
type ruleFilter struct {
	kind                  kmsg.ACLResourceType
	pattern               kmsg.ACLResourcePatternType
	name, principal, host *string
	operation             kmsg.ACLOperation
	permission            kmsg.ACLPermissionType
}

// known says whether the filter has only values that have a meaning.
func (f *ruleFilter) known() bool {
	return f.kind >= kmsg.ACLResourceTypeAny && f.kind <= kmsg.ACLResourceTypeUser &&
		f.pattern >= kmsg.ACLResourcePatternTypeAny && f.pattern <= kmsg.ACLResourcePatternTypePrefixed &&
		f.operation >= kmsg.ACLOperationAny && f.operation <= lastOperation &&
		f.permission >= kmsg.ACLPermissionTypeAny && f.permission <= kmsg.ACLPermissionTypeAllow
}

// lastOperation is the highest operation that there is: TWO_PHASE_COMMIT.
const lastOperation kmsg.ACLOperation = 15

func (f *ruleFilter) matches(r *rule) bool {
	same := func(want *string, got string) bool { return want == nil || *want == got }
	return (f.kind == kmsg.ACLResourceTypeAny || f.kind == r.kind) &&
		same(f.principal, r.principal) && same(f.host, r.host) &&
		(f.operation == kmsg.ACLOperationAny || f.operation == r.operation) &&
		(f.permission == kmsg.ACLPermissionTypeAny || f.permission == r.permission) &&
		f.matchesResource(r)
}

func (f *ruleFilter) matchesResource(r *rule) bool {
	switch {
	case f.pattern != r.pattern && f.pattern != kmsg.ACLResourcePatternTypeAny && f.pattern != kmsg.ACLResourcePatternTypeMatch:
		return false
	case f.name == nil || *f.name == r.name:
		return true
	case f.pattern != kmsg.ACLResourcePatternTypeMatch:
		return false
	case r.pattern == kmsg.ACLResourcePatternTypeLiteral:
		return r.name == anything
	}
	return strings.HasPrefix(*f.name, r.name)
}
