package kafka

import (
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

func TestDescribeCluster(t *testing.T) {
	versionsOf(t, kmsg.DescribeCluster, func(t *testing.T, v int16) {
		s := serveAdmin(t, newAdminBroker())
		for _, operations := range []bool{false, true} {
			q := kmsg.NewPtrDescribeClusterRequest()
			q.IncludeClusterAuthorizedOperations = operations
			r := askAdmin[*kmsg.DescribeClusterResponse](t, s, q, v)
			if r.ErrorCode != 0 || r.ClusterID != "cluster" || r.ControllerID != 7 || len(r.Brokers) != 2 {
				t.Fatalf("%+v", r)
			}
			if a, b := r.Brokers[0], r.Brokers[1]; a.NodeID != 7 || a.Host != "seven" || a.Port != 1 || *a.Rack != "r" || b.NodeID != 8 || b.Rack != nil {
				t.Errorf("%+v", r.Brokers)
			}
			if (r.ClusterAuthorizedOperations == math.MinInt32) == operations {
				t.Errorf("operations %d when asked for: %v", r.ClusterAuthorizedOperations, operations)
			}
		}
		if v == 0 {
			return
		}
		for endpoint, code := range map[int8]int16{2: kerr.MISMATCHED_ENDPOINT_TYPE, 0: kerr.UNSUPPORTED_ENDPOINT_TYPE, 3: kerr.UNSUPPORTED_ENDPOINT_TYPE} {
			q := kmsg.NewPtrDescribeClusterRequest()
			q.EndpointType = endpoint
			if r := askAdmin[*kmsg.DescribeClusterResponse](t, s, q, v); r.ErrorCode != code || r.ErrorMessage == nil {
				t.Errorf("endpoint %d: %+v", endpoint, r)
			}
		}
	})
}
