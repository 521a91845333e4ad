package kafka

import (
	"cmp"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// scramNumbers are the mechanisms as these requests number them.
var scramNumbers = map[int8]string{1: mechanism256, 2: mechanism512}

// DescribeUserScramCredentials, version 0. Lists users with their mechanisms and
// iterations: those asked for, or all.
func (c *call) describeUserScramCredentials(q *kmsg.DescribeUserSCRAMCredentialsRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.DescribeUserSCRAMCredentialsResponse)
	switch {
	case !c.allowed(kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeCluster, clusterName):
		r.ErrorCode = kerr.CLUSTER_AUTHORIZATION_FAILED
		return r
	case c.conn.server.users == nil:
		return r
	}
	set := c.conn.server.users.set()
	asked := map[string]int{}
	for i := range q.Users {
		asked[q.Users[i].Name]++
	}
	if len(q.Users) == 0 {
		for key := range set.all {
			asked[key.name] = 1
		}
	}
	for _, name := range slices.Sorted(maps.Keys(asked)) {
		r.Results = append(r.Results, describeUser(set, name, asked[name] > 1))
	}
	return r
}

func describeUser(set *userSet, name string, twice bool) kmsg.DescribeUserSCRAMCredentialsResponseResult {
	out := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
	out.User = name
	if twice {
		message := "the user was asked for twice"
		out.ErrorCode, out.ErrorMessage = kerr.DUPLICATE_RESOURCE, &message
		return out
	}
	for number, mechanism := range scramNumbers {
		if c, ok := set.all[userKey{mechanism, name}]; ok {
			info := kmsg.NewDescribeUserSCRAMCredentialsResponseResultCredentialInfo()
			info.Mechanism, info.Iterations = number, int32(c.iterations)
			out.CredentialInfos = append(out.CredentialInfos, info)
		}
	}
	slices.SortFunc(out.CredentialInfos, func(a, b kmsg.DescribeUserSCRAMCredentialsResponseResultCredentialInfo) int {
		return cmp.Compare(a.Mechanism, b.Mechanism)
	})
	if len(out.CredentialInfos) == 0 {
		message := "there is no such user"
		out.ErrorCode, out.ErrorMessage = kerr.RESOURCE_NOT_FOUND, &message
	}
	return out
}
