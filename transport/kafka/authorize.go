package kafka

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// authorizer decides by the rules of the store. Its entries are by a hash of their value:
//
//	value  version u8 (1) | kind i8 | pattern i8 | operation i8 | permission i8 |
//	       name | principal | host
//
// with u16 lengths before the three, big endian.
type authorizer struct {
	store  Store
	supers map[string]bool
	logger *slog.Logger
	cached atomic.Pointer[storedRules]
}

// storedRules is what the store had at a version.
type storedRules struct {
	version uint64
	set     *ruleSet
}

// Bounds of rules.
const (
	ruleTextMax = 1024 // of a name, a principal or a host
	rulesMax    = 10_000
)

var errRuleEncoding = errors.New("what is kept of an access rule is damaged, or of a newer version")

func newAuthorizer(o *Options) *authorizer {
	a := &authorizer{store: noStore{}, supers: map[string]bool{}, logger: o.Logger}
	if o.Store != nil {
		a.store = o.Store
	}
	for _, name := range o.SuperUsers {
		a.supers[name] = true
	}
	return a
}

// rules returns what the store has.
func (a *authorizer) rules() *ruleSet {
	version := a.store.EntriesVersion(kindRule)
	if c := a.cached.Load(); c != nil && c.version == version {
		return c.set
	}
	var rules []rule
	for key, value := range a.store.Entries(kindRule) {
		r, err := decodeRule(value)
		if err != nil {
			// What cannot be read may be one that denies: it denies everything.
			a.logger.Error("an access rule cannot be read: all but super users are refused", "rule", key, "err", err)
			rules = append(rules, deniesAll()...)
			continue
		}
		rules = append(rules, r)
	}
	slices.SortFunc(rules, compareRules)
	set := newRuleSet(rules)
	a.cached.Store(&storedRules{version, set})
	return set
}

// deniesAll are rules that deny everybody everything.
func deniesAll() (out []rule) {
	for kind := kmsg.ACLResourceTypeTopic; kind <= kmsg.ACLResourceTypeUser; kind++ {
		out = append(out, rule{kind: kind, pattern: kmsg.ACLResourcePatternTypeLiteral, name: anything, principal: anybody, host: anything,
			operation: kmsg.ACLOperationAll, permission: kmsg.ACLPermissionTypeDeny})
	}
	return out
}

func compareRules(a, b rule) int {
	return strings.Compare(string(a.encode()), string(b.encode()))
}

func (a *authorizer) allowed(who actor, op kmsg.ACLOperation, kind kmsg.ACLResourceType, name string) bool {
	return a.supers[who.principal] || a.rules().allowed(who, op, kind, name)
}

func (a *authorizer) allowedAny(who actor, op kmsg.ACLOperation, kind kmsg.ACLResourceType) bool {
	return a.supers[who.principal] || a.rules().allowedAny(who, op, kind)
}

// change adds and takes away rules.
func (a *authorizer) change(ctx context.Context, add, remove []rule) error {
	entries := map[string][]byte{}
	for i := range remove {
		entries[remove[i].key()] = nil
	}
	for i := range add {
		entries[add[i].key()] = add[i].encode()
	}
	if len(entries) == 0 {
		return nil
	}
	return a.store.SetEntries(ctx, kindRule, entries)
}

const ruleVersion = 1

func (r *rule) encode() []byte {
	b := []byte{ruleVersion, byte(r.kind), byte(r.pattern), byte(r.operation), byte(r.permission)}
	for _, text := range []string{r.name, r.principal, r.host} {
		b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
		b = append(b, text...)
	}
	return b
}

// key is what the rule is kept under: a rule that is there already is the same entry.
func (r *rule) key() string {
	sum := sha256.Sum256(r.encode())
	return hex.EncodeToString(sum[:16])
}

func decodeRule(b []byte) (r rule, err error) {
	if len(b) < 5 || b[0] != ruleVersion {
		return r, errRuleEncoding
	}
	r.kind, r.pattern = kmsg.ACLResourceType(b[1]), kmsg.ACLResourcePatternType(b[2])
	r.operation, r.permission = kmsg.ACLOperation(b[3]), kmsg.ACLPermissionType(b[4])
	b = b[5:]
	for _, text := range []*string{&r.name, &r.principal, &r.host} {
		if len(b) < 2 {
			return r, errRuleEncoding
		}
		n := int(binary.BigEndian.Uint16(b))
		if len(b) < 2+n {
			return r, errRuleEncoding
		}
		*text, b = string(b[2:2+n]), b[2+n:]
	}
	if len(b) > 0 || r.check() != nil {
		return r, errRuleEncoding
	}
	return r, nil
}

// check says what is wrong with a rule.
func (r *rule) check() error {
	switch {
	case r.kind <= kmsg.ACLResourceTypeAny || r.kind > kmsg.ACLResourceTypeUser:
		return fmt.Errorf("the resource type %d is none that rules are about", r.kind)
	case r.pattern != kmsg.ACLResourcePatternTypeLiteral && r.pattern != kmsg.ACLResourcePatternTypePrefixed:
		return fmt.Errorf("the pattern type %d is neither literal nor prefixed", r.pattern)
	case r.operation <= kmsg.ACLOperationAny || r.operation > lastOperation:
		return fmt.Errorf("the operation %d is none that rules are about", r.operation)
	case r.permission != kmsg.ACLPermissionTypeAllow && r.permission != kmsg.ACLPermissionTypeDeny:
		return fmt.Errorf("the permission type %d is neither allow nor deny", r.permission)
	case r.kind == kmsg.ACLResourceTypeCluster && r.name != clusterName:
		return fmt.Errorf("the cluster is named %q, not %.64q", clusterName, r.name)
	case r.name == "" || len(r.name) > ruleTextMax || len(r.principal) > ruleTextMax || len(r.host) > ruleTextMax:
		return fmt.Errorf("a resource has no name, or a text is longer than %d bytes", ruleTextMax)
	case strings.Index(r.principal, ":") < 1:
		return fmt.Errorf("the principal %.64q is not type:name", r.principal)
	}
	return nil
}

// allowed says whether the client may do that.
func (c *call) allowed(op kmsg.ACLOperation, kind kmsg.ACLResourceType, name string) bool {
	a := c.conn.server.authorizer
	return a == nil || a.allowed(c.actor(), op, kind, name)
}

// allowedAny says whether there may be resources of a kind to which the client may do
// that, whatever their names.
func (c *call) allowedAny(op kmsg.ACLOperation, kind kmsg.ACLResourceType) bool {
	a := c.conn.server.authorizer
	return a == nil || a.allowedAny(c.actor(), op, kind)
}

func (c *call) actor() actor { return actor{c.principal, plainHost(c.client.Host)} }
