package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// AlterUserScramCredentials, version 0. Makes, changes and deletes users' credentials.
// The password comes salted, so the node never sees it; 4,096 to 16,384 iterations.
// A user may be in a request once. Those changes that are good are made together.
func (c *call) alterUserScramCredentials(q *kmsg.AlterUserSCRAMCredentialsRequest) kmsg.Response {
	a := scramAlteration{entries: map[string][]byte{}, codes: map[string]*kerr.Error{}}
	for i := range q.Deletions {
		a.order = append(a.order, q.Deletions[i].Name)
	}
	for i := range q.Upsertions {
		a.order = append(a.order, q.Upsertions[i].Name)
	}
	switch {
	case !c.allowed(kmsg.ACLOperationAlter, kmsg.ACLResourceTypeCluster, clusterName):
		a.refuseAll(kerr.Errorf(kerr.CLUSTER_AUTHORIZATION_FAILED, "altering users wants ALTER on the cluster"))
	case c.conn.server.users == nil:
		a.refuseAll(kerr.Errorf(kerr.SECURITY_DISABLED, "the node keeps no users"))
	default:
		a.plan(q, c.conn.server.users.set())
		if err := a.apply(c); err != nil {
			code, message := c.code(err)
			a.refuseAll(&kerr.Error{Code: code, Message: *message})
		}
	}
	return a.response(q)
}

// scramAlteration is what a request comes to.
type scramAlteration struct {
	order   []string // users, as they were named
	entries map[string][]byte
	codes   map[string]*kerr.Error // of users that are refused
}

func (a *scramAlteration) refuseAll(err *kerr.Error) {
	for _, name := range a.order {
		if a.codes[name] == nil {
			a.codes[name] = err
		}
	}
}

func (a *scramAlteration) plan(q *kmsg.AlterUserSCRAMCredentialsRequest, set *userSet) {
	times := map[string]int{}
	for _, name := range a.order {
		times[name]++
	}
	for name, n := range times {
		if n > 1 {
			a.codes[name] = kerr.Errorf(kerr.DUPLICATE_RESOURCE, "the user is in the request %d times", n)
		}
	}
	for i := range q.Deletions {
		d := &q.Deletions[i]
		if times[d.Name] > 1 {
			continue
		}
		mechanism, err := scramTarget(d.Name, d.Mechanism)
		if _, ok := set.all[userKey{mechanism, d.Name}]; err == nil && !ok {
			err = kerr.Errorf(kerr.RESOURCE_NOT_FOUND, "the user has no credential for %s", mechanism)
		}
		if err != nil {
			a.codes[d.Name] = err
			continue
		}
		a.entries[userEntry(mechanism, d.Name)] = nil
	}
	for i := range q.Upsertions {
		u := &q.Upsertions[i]
		if times[u.Name] > 1 {
			continue
		}
		mechanism, err := scramTarget(u.Name, u.Mechanism)
		if err == nil {
			err = checkUpsertion(u)
		}
		if err != nil {
			a.codes[u.Name] = err
			continue
		}
		made := credentialOf(mechanism, slices.Clone(u.Salt), u.SaltedPassword, int(u.Iterations))
		a.entries[userEntry(mechanism, u.Name)] = made.encode()
	}
}

func scramTarget(name string, number int8) (mechanism string, err *kerr.Error) {
	mechanism = scramNumbers[number]
	switch {
	case name == "" || len(name) > userNameMax:
		return "", kerr.Errorf(kerr.UNACCEPTABLE_CREDENTIAL, "a user's name has 1 to %d bytes", userNameMax)
	case mechanism == "":
		return "", kerr.Errorf(kerr.UNSUPPORTED_SASL_MECHANISM, "mechanism %d is not known: 1 is %s, 2 is %s", number, mechanism256, mechanism512)
	}
	return mechanism, nil
}

func checkUpsertion(u *kmsg.AlterUserSCRAMCredentialsRequestUpsertion) *kerr.Error {
	switch {
	case u.Iterations < scramIterationsMin:
		return kerr.Errorf(kerr.UNACCEPTABLE_CREDENTIAL, "%d iterations are too few: at least %d", u.Iterations, scramIterationsMin)
	case u.Iterations > scramIterationsMax:
		return kerr.Errorf(kerr.UNACCEPTABLE_CREDENTIAL, "%d iterations are too many: at most %d", u.Iterations, scramIterationsMax)
	case len(u.Salt) == 0 || len(u.SaltedPassword) == 0:
		return kerr.Errorf(kerr.UNACCEPTABLE_CREDENTIAL, "a salt or a salted password is empty")
	case len(u.Salt) > saltMax || len(u.SaltedPassword) > saltMax:
		return kerr.Errorf(kerr.UNACCEPTABLE_CREDENTIAL, "a salt or a salted password is above %d bytes", saltMax)
	}
	return nil
}

func (a *scramAlteration) apply(c *call) error {
	if len(a.entries) == 0 {
		return nil
	}
	return c.conn.server.opts.Store.SetEntries(c.ctx, kindUser, a.entries)
}

func (a *scramAlteration) response(q *kmsg.AlterUserSCRAMCredentialsRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.AlterUserSCRAMCredentialsResponse)
	seen := map[string]bool{}
	for _, name := range a.order {
		if seen[name] {
			continue
		}
		seen[name] = true
		result := kmsg.NewAlterUserSCRAMCredentialsResponseResult()
		result.User = name
		if err := a.codes[name]; err != nil {
			result.ErrorCode, result.ErrorMessage = err.Code, &err.Message
		}
		r.Results = append(r.Results, result)
	}
	return r
}
