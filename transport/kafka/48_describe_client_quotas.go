package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// DescribeClientQuotas, versions 0 and 1. There are no quotas, and that is the answer:
// Kafka's tools want it before they list users.
func (c *call) describeClientQuotas(q *kmsg.DescribeClientQuotasRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.DescribeClientQuotasResponse)
	if !c.allowed(kmsg.ACLOperationDescribeConfigs, kmsg.ACLResourceTypeCluster, clusterName) {
		r.ErrorCode, r.ErrorMessage = kerr.CLUSTER_AUTHORIZATION_FAILED, new("quotas are not for this client")
		return r
	}
	r.Entries = []kmsg.DescribeClientQuotasResponseEntry{} // null is for errors
	return r
}
