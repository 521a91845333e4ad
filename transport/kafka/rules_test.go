package kafka

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/billetlog/billet/internal/kerr"
)

// allowedPlainly decides as ruleSet does, by looking at every rule.
func allowedPlainly(rules []rule, who actor, op kmsg.ACLOperation, kind kmsg.ACLResourceType, name string) bool {
	allow := false
	for _, r := range rules {
		about := r.kind == kind && (r.pattern == kmsg.ACLResourcePatternTypeLiteral && (r.name == name || r.name == "*") ||
			r.pattern == kmsg.ACLResourcePatternTypePrefixed && strings.HasPrefix(name, r.name))
		if !about || r.principal != who.principal && r.principal != "User:*" || r.host != who.host && r.host != "*" {
			continue
		}
		ops := []kmsg.ACLOperation{r.operation}
		if r.permission == kmsg.ACLPermissionTypeAllow {
			switch r.operation {
			case kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationDelete, kmsg.ACLOperationAlter:
				ops = append(ops, kmsg.ACLOperationDescribe)
			case kmsg.ACLOperationAlterConfigs:
				ops = append(ops, kmsg.ACLOperationDescribeConfigs)
			}
		}
		if r.operation != kmsg.ACLOperationAll && !slices.Contains(ops, op) {
			continue
		}
		if r.permission == kmsg.ACLPermissionTypeDeny {
			return false
		}
		allow = true
	}
	return allow
}

// The names that rules and questions are about are few, so that they meet.
func anyName() *rapid.Generator[string] {
	return rapid.OneOf(rapid.StringMatching(`[ab]{1,3}`), rapid.Just("*"), rapid.StringMatching(`\*[ab]`))
}

func anyOperation() *rapid.Generator[kmsg.ACLOperation] {
	return rapid.Custom(func(t *rapid.T) kmsg.ACLOperation {
		return kmsg.ACLOperation(rapid.IntRange(2, 12).Draw(t, "operation"))
	})
}

func anyRule() *rapid.Generator[rule] {
	return rapid.Custom(func(t *rapid.T) rule {
		r := rule{
			kind:       rapid.SampledFrom([]kmsg.ACLResourceType{kmsg.ACLResourceTypeTopic, kmsg.ACLResourceTypeGroup}).Draw(t, "kind"),
			pattern:    rapid.SampledFrom([]kmsg.ACLResourcePatternType{kmsg.ACLResourcePatternTypeLiteral, kmsg.ACLResourcePatternTypePrefixed}).Draw(t, "pattern"),
			name:       anyName().Draw(t, "name"),
			principal:  rapid.SampledFrom([]string{"User:a", "User:b", "User:*"}).Draw(t, "principal"),
			host:       rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "*"}).Draw(t, "host"),
			operation:  anyOperation().Draw(t, "operation"),
			permission: rapid.SampledFrom([]kmsg.ACLPermissionType{kmsg.ACLPermissionTypeAllow, kmsg.ACLPermissionTypeAllow, kmsg.ACLPermissionTypeDeny}).Draw(t, "permission"),
		}
		return r
	})
}

// The rules that are found by maps decide as all of them do, one by one.
func TestRulesDecide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rules := rapid.SliceOfN(anyRule(), 0, 12).Draw(t, "rules")
		set := newRuleSet(rules)
		who := actor{rapid.SampledFrom([]string{"User:a", "User:b", "User:c"}).Draw(t, "who"), rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2"}).Draw(t, "host")}
		op, kind, name := anyOperation().Draw(t, "op"), kmsg.ACLResourceTypeTopic, anyName().Draw(t, "asked")
		if got, want := set.allowed(who, op, kind, name), allowedPlainly(rules, who, op, kind, name); got != want {
			t.Fatalf("%v on %q for %v: %v, want %v", op, name, who, got, want)
		}
		// Whatever is allowed on some name by a rule for that very operation is allowed on any.
		if set.allowedAny(who, op, kind) {
			return
		}
		for _, r := range rules {
			exact := r
			exact.operation = op
			if r.operation != op && r.operation != kmsg.ACLOperationAll || r.permission != kmsg.ACLPermissionTypeAllow || r.kind != kind || !r.concerns(who) {
				continue
			}
			probe := r.name
			if r.pattern == kmsg.ACLResourcePatternTypePrefixed {
				probe += "zz"
			} else if r.isAboutAll() {
				probe = "zz"
			}
			if allowedPlainly(rules, who, op, kind, probe) {
				t.Fatalf("%v is allowed on %q, and not on any: %+v", op, probe, rules)
			}
		}
	})
}

// Cases as Kafka decides them.
func TestRules(t *testing.T) {
	topic, group := kmsg.ACLResourceTypeTopic, kmsg.ACLResourceTypeGroup
	literal, prefixed := kmsg.ACLResourcePatternTypeLiteral, kmsg.ACLResourcePatternTypePrefixed
	allow, deny := kmsg.ACLPermissionTypeAllow, kmsg.ACLPermissionTypeDeny
	read, describe, all := kmsg.ACLOperationRead, kmsg.ACLOperationDescribe, kmsg.ACLOperationAll
	ann := actor{"User:ann", "10.0.0.1"}
	for _, c := range []struct {
		name  string
		rules []rule
		op    kmsg.ACLOperation
		at    string
		want  bool
	}{
		{"no rule", nil, read, "t", false},
		{"a rule", []rule{{topic, literal, "t", "User:ann", "*", read, allow}}, read, "t", true},
		{"another name", []rule{{topic, literal, "t", "User:ann", "*", read, allow}}, read, "tt", false},
		{"another kind", []rule{{group, literal, "t", "User:ann", "*", read, allow}}, read, "t", false},
		{"another user", []rule{{topic, literal, "t", "User:bob", "*", read, allow}}, read, "t", false},
		{"another type of user", []rule{{topic, literal, "t", "Group:ann", "*", read, allow}}, read, "t", false},
		{"another host", []rule{{topic, literal, "t", "User:ann", "10.0.0.2", read, allow}}, read, "t", false},
		{"everybody", []rule{{topic, literal, "t", "User:*", "*", read, allow}}, read, "t", true},
		{"all names", []rule{{topic, literal, "*", "User:ann", "*", read, allow}}, read, "t", true},
		{"a prefix", []rule{{topic, prefixed, "or", "User:ann", "*", read, allow}}, read, "orders", true},
		{"a prefix that is the name", []rule{{topic, prefixed, "or", "User:ann", "*", read, allow}}, read, "or", true},
		{"a star is no prefix", []rule{{topic, prefixed, "*", "User:ann", "*", read, allow}}, read, "t", false},
		{"deny wins", []rule{{topic, literal, "t", "User:ann", "*", all, allow}, {topic, prefixed, "t", "User:*", "*", read, deny}}, read, "t", false},
		{"reading shows", []rule{{topic, literal, "t", "User:ann", "*", read, allow}}, describe, "t", true},
		{"showing does not read", []rule{{topic, literal, "t", "User:ann", "*", describe, allow}}, read, "t", false},
		{"denied to read, not to see", []rule{{topic, literal, "t", "User:ann", "*", all, allow}, {topic, literal, "t", "User:ann", "*", read, deny}}, describe, "t", true},
		{"denied all", []rule{{topic, literal, "t", "User:ann", "*", read, allow}, {topic, literal, "t", "User:ann", "*", all, deny}}, describe, "t", false},
		{"altering settings shows them", []rule{{topic, literal, "t", "User:ann", "*", kmsg.ACLOperationAlterConfigs, allow}}, kmsg.ACLOperationDescribeConfigs, "t", true},
		{"creating does not show", []rule{{topic, literal, "t", "User:ann", "*", kmsg.ACLOperationCreate, allow}}, describe, "t", false},
	} {
		if got := newRuleSet(c.rules).allowed(ann, c.op, topic, c.at); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	six := actor{"User:ann", plainHost("::ffff:10.0.0.1")}
	java := []rule{{topic, literal, "t", "User:ann", "0:0:0:0:0:0:0:1", read, allow}, {topic, literal, "u", "User:ann", "10.0.0.1", read, allow}}
	if !newRuleSet(java).allowed(actor{"User:ann", plainHost("::1")}, read, topic, "t") || !newRuleSet(java).allowed(six, read, topic, "u") {
		t.Error("an address that is written in another way is another one")
	}
}

// Any resource at all, as for idempotent producers.
func TestAllowedAny(t *testing.T) {
	topic := kmsg.ACLResourceTypeTopic
	literal, prefixed := kmsg.ACLResourcePatternTypeLiteral, kmsg.ACLResourcePatternTypePrefixed
	allow, deny, write := kmsg.ACLPermissionTypeAllow, kmsg.ACLPermissionTypeDeny, kmsg.ACLOperationWrite
	ann := actor{"User:ann", "10.0.0.1"}
	yes := rule{topic, literal, "orders", "User:ann", "*", write, allow}
	for _, c := range []struct {
		name  string
		rules []rule
		want  bool
	}{
		{"no rule", nil, false},
		{"one topic", []rule{yes}, true},
		{"denied there", []rule{yes, {topic, literal, "orders", "User:ann", "*", write, deny}}, false},
		{"denied by prefix", []rule{yes, {topic, prefixed, "ord", "User:ann", "*", kmsg.ACLOperationAll, deny}}, false},
		{"denied everywhere", []rule{yes, {topic, literal, "*", "User:*", "*", write, deny}}, false},
		{"denied elsewhere", []rule{yes, {topic, literal, "ord", "User:ann", "*", write, deny}}, true},
		{"all but some", []rule{{topic, literal, "*", "User:ann", "*", write, allow}, {topic, prefixed, "o", "User:ann", "*", write, deny}}, true},
		{"a longer prefix", []rule{{topic, prefixed, "o", "User:ann", "*", write, allow}, {topic, prefixed, "ord", "User:ann", "*", write, deny}}, true},
		{"reading is not writing", []rule{{topic, literal, "t", "User:ann", "*", kmsg.ACLOperationRead, allow}}, false},
	} {
		if got := newRuleSet(c.rules).allowedAny(ann, write, topic); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// What is kept of a rule does not change its form, and what is damaged denies.
func TestRuleEncoding(t *testing.T) {
	r := rule{kmsg.ACLResourceTypeTopic, kmsg.ACLResourcePatternTypePrefixed, "orders", "User:ann", "10.0.0.1", kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow}
	golden(t, "rule", r.encode())
	if r.key() != "44f1414105597446f5df1e8db0efbb92" {
		t.Errorf("the rule's key is %s", r.key())
	}
	if got, err := decodeRule(r.encode()); err != nil || got != r {
		t.Errorf("decoded %+v: %v", got, err)
	}
	for n := range r.encode() {
		if _, err := decodeRule(r.encode()[:n]); !errors.Is(err, errRuleEncoding) {
			t.Errorf("cut to %d bytes: %v", n, err)
		}
	}
	store := &memoryStore{}
	a := newAuthorizer(&Options{Store: store, Logger: newConnRig(t).logger, SuperUsers: []string{"User:root"}})
	if err := a.change(t.Context(), []rule{r}, nil); err != nil {
		t.Fatal(err)
	}
	ann, root := actor{"User:ann", "10.0.0.1"}, actor{"User:root", "10.0.0.9"}
	if !a.allowed(ann, kmsg.ACLOperationRead, kmsg.ACLResourceTypeTopic, "orders") {
		t.Error("the rule does not count")
	}
	if err := store.SetEntries(t.Context(), kindRule, map[string][]byte{"damaged": {9, 9}}); err != nil {
		t.Fatal(err)
	}
	if a.allowed(ann, kmsg.ACLOperationRead, kmsg.ACLResourceTypeTopic, "orders") || !a.allowed(root, kmsg.ACLOperationRead, kmsg.ACLResourceTypeTopic, "orders") {
		t.Error("a rule that cannot be read does not refuse all but super users")
	}
}

// Rules by client: created, listed by every kind of filter, deleted.
func TestACLRequests(t *testing.T) {
	r := newConnRig(t, func(o *Options) { o.Authorize, o.SuperUsers = true, []string{anonymous} })
	r.Serve()
	c := r.dial()
	made := func(name, principal string, change ...func(*kmsg.CreateACLsRequestCreation)) kmsg.CreateACLsRequestCreation {
		x := kmsg.CreateACLsRequestCreation{ResourceType: kmsg.ACLResourceTypeTopic, ResourceName: name, ResourcePatternType: kmsg.ACLResourcePatternTypeLiteral,
			Principal: principal, Host: "*", Operation: kmsg.ACLOperationRead, PermissionType: kmsg.ACLPermissionTypeAllow}
		for _, f := range change {
			f(&x)
		}
		return x
	}
	create := func(creations ...kmsg.CreateACLsRequestCreation) (codes []int16) {
		q := kmsg.NewPtrCreateACLsRequest()
		q.Creations = creations
		for _, result := range ask[*kmsg.CreateACLsResponse](c, q, 3).Results {
			codes = append(codes, result.ErrorCode)
		}
		return codes
	}
	prefix := func(x *kmsg.CreateACLsRequestCreation) { x.ResourcePatternType = kmsg.ACLResourcePatternTypePrefixed }
	got := create(made("orders", "User:ann"), made("ord", "User:ann", prefix), made("*", "User:ann"), made("orders", "User:ann"), made("", "User:ann"),
		made("t", "ann"), made("t", "User:ann", func(x *kmsg.CreateACLsRequestCreation) { x.Operation = kmsg.ACLOperationAny }),
		made("t", "User:ann", func(x *kmsg.CreateACLsRequestCreation) { x.PermissionType = kmsg.ACLPermissionTypeAny }),
		made("t", "User:ann", func(x *kmsg.CreateACLsRequestCreation) { x.ResourcePatternType = kmsg.ACLResourcePatternTypeMatch }),
		made("other", "User:ann", func(x *kmsg.CreateACLsRequestCreation) { x.ResourceType = kmsg.ACLResourceTypeCluster }),
		made(clusterName, "User:bob", func(x *kmsg.CreateACLsRequestCreation) { x.ResourceType = kmsg.ACLResourceTypeCluster }))
	const bad = kerr.INVALID_REQUEST
	if want := []int16{0, 0, 0, 0, bad, bad, bad, bad, bad, bad, 0}; !slices.Equal(got, want) {
		t.Errorf("codes %v, want %v", got, want)
	}
	filter := func(pattern kmsg.ACLResourcePatternType, name *string) *kmsg.DescribeACLsRequest {
		q := kmsg.NewPtrDescribeACLsRequest()
		q.ResourceType, q.ResourcePatternType, q.ResourceName = kmsg.ACLResourceTypeTopic, pattern, name
		q.Operation, q.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
		return q
	}
	describe := func(version int16, q *kmsg.DescribeACLsRequest) (names []string) {
		for _, x := range ask[*kmsg.DescribeACLsResponse](c, q, version).Resources {
			names = append(names, x.ResourceName)
		}
		slices.Sort(names)
		return names
	}
	for _, x := range []struct {
		version int16
		q       *kmsg.DescribeACLsRequest
		want    []string
	}{
		{3, filter(kmsg.ACLResourcePatternTypeAny, nil), []string{"*", "ord", "orders"}},
		{1, filter(kmsg.ACLResourcePatternTypeLiteral, nil), []string{"*", "orders"}},
		{0, filter(kmsg.ACLResourcePatternTypeLiteral, nil), []string{"*", "orders"}},
		{2, filter(kmsg.ACLResourcePatternTypePrefixed, nil), []string{"ord"}},
		{3, filter(kmsg.ACLResourcePatternTypeMatch, new("orders")), []string{"*", "ord", "orders"}},
		{3, filter(kmsg.ACLResourcePatternTypeMatch, new("or")), []string{"*"}},
		{3, filter(kmsg.ACLResourcePatternTypeAny, new("ord")), []string{"ord"}},
	} {
		if got := describe(x.version, x.q); !slices.Equal(got, x.want) {
			t.Errorf("version %d: %v, want %v", x.version, got, x.want)
		}
	}
	if a := ask[*kmsg.DescribeACLsResponse](c, filter(9, nil), 3); a.ErrorCode != kerr.INVALID_REQUEST {
		t.Errorf("an unknown pattern: code %d", a.ErrorCode)
	}
	q := kmsg.NewPtrDeleteACLsRequest()
	q.Filters = []kmsg.DeleteACLsRequestFilter{
		{ResourceType: kmsg.ACLResourceTypeTopic, ResourcePatternType: kmsg.ACLResourcePatternTypeMatch, ResourceName: new("orders"), Operation: 1, PermissionType: 1},
		{ResourceType: 0, ResourcePatternType: 1, Operation: 1, PermissionType: 1}}
	gone := ask[*kmsg.DeleteACLsResponse](c, q, 3).Results
	if len(gone) != 2 || len(gone[0].MatchingACLs) != 3 || gone[1].ErrorCode != kerr.INVALID_REQUEST {
		t.Errorf("deleted %+v", gone)
	}
	if got := describe(3, filter(kmsg.ACLResourcePatternTypeAny, nil)); len(got) > 0 {
		t.Errorf("left: %v", got)
	}
	r.store.failWith(context.DeadlineExceeded)
	if codes := create(made("t", "User:ann")); !slices.Equal(codes, []int16{kerr.REQUEST_TIMED_OUT}) {
		t.Errorf("the store does not answer: %v", codes)
	}
}

// Without rules that count, and without leave, there is nothing to see.
func TestACLRequestsRefused(t *testing.T) {
	for _, x := range []struct {
		name   string
		change func(*Options)
		code   int16
	}{
		{"no rules", func(*Options) {}, kerr.SECURITY_DISABLED},
		{"no leave", func(o *Options) { o.Authorize = true }, kerr.CLUSTER_AUTHORIZATION_FAILED},
	} {
		t.Run(x.name, func(t *testing.T) {
			r := newConnRig(t, x.change)
			r.Serve()
			c := r.dial()
			if a := ask[*kmsg.DescribeACLsResponse](c, kmsg.NewPtrDescribeACLsRequest(), 3); a.ErrorCode != x.code || a.ErrorMessage == nil {
				t.Errorf("listing: code %d", a.ErrorCode)
			}
			create := kmsg.NewPtrCreateACLsRequest()
			create.Creations = make([]kmsg.CreateACLsRequestCreation, 2)
			if a := ask[*kmsg.CreateACLsResponse](c, create, 3); len(a.Results) != 2 || a.Results[0].ErrorCode != x.code || a.Results[1].ErrorCode != x.code {
				t.Errorf("creating: %+v", a.Results)
			}
			remove := kmsg.NewPtrDeleteACLsRequest()
			remove.Filters = make([]kmsg.DeleteACLsRequestFilter, 2)
			if a := ask[*kmsg.DeleteACLsResponse](c, remove, 3); len(a.Results) != 2 || a.Results[0].ErrorCode != x.code || a.Results[1].ErrorCode != x.code {
				t.Errorf("deleting: %+v", a.Results)
			}
		})
	}
}

// The hot path is a few look-ups.
func BenchmarkAllowed(b *testing.B) {
	store := &memoryStore{}
	a := newAuthorizer(&Options{Store: store, Logger: nil})
	var rules []rule
	for _, name := range []string{"a", "ab", "orders", "*"} {
		for _, pattern := range []kmsg.ACLResourcePatternType{kmsg.ACLResourcePatternTypeLiteral, kmsg.ACLResourcePatternTypePrefixed} {
			rules = append(rules, rule{kmsg.ACLResourceTypeTopic, pattern, name, "User:ann", "*", kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow})
		}
	}
	if err := a.change(b.Context(), rules, nil); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if !a.allowed(actor{"User:ann", "10.0.0.1"}, kmsg.ACLOperationRead, kmsg.ACLResourceTypeTopic, "orders") {
			b.Fatal("not allowed")
		}
	}
}

// Any bytes are a rule that encodes to the same bytes, or an error.
func FuzzRule(f *testing.F) {
	r := rule{kmsg.ACLResourceTypeTopic, kmsg.ACLResourcePatternTypePrefixed, "orders", "User:ann", "*", kmsg.ACLOperationRead, kmsg.ACLPermissionTypeAllow}
	f.Add(r.encode())
	f.Add([]byte{1, 2, 3, 4, 5, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decodeRule(b); err == nil && string(r.encode()) != string(b) {
			t.Errorf("%x is %+v, which is %x", b, r, r.encode())
		}
	})
}
