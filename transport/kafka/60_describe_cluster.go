package kafka

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// The endpoints that DescribeCluster can be about.
const (
	endpointBrokers     int8 = 1
	endpointControllers int8 = 2
)

// DescribeCluster, versions 0 to 2. It lists the nodes that have the client's listener.
// Those that are down are not listed, also where version 2 asks for them: a node that
// clients cannot reach now has no address for them. There is no listener of controllers.
func (c *call) describeCluster(q *kmsg.DescribeClusterRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.DescribeClusterResponse)
	r.EndpointType = endpointBrokers
	if q.Version >= 1 && q.EndpointType != endpointBrokers {
		err := kerr.Errorf(kerr.UNSUPPORTED_ENDPOINT_TYPE, "endpoint type %d is not known", q.EndpointType)
		if q.EndpointType == endpointControllers {
			err = kerr.Errorf(kerr.MISMATCHED_ENDPOINT_TYPE, "this endpoint is a broker's, and a controller's is asked for: any node takes requests for the controller")
		}
		r.ErrorCode, r.ErrorMessage = c.code(err)
		return r
	}
	b := c.broker()
	r.ClusterID, r.ControllerID = b.ClusterID(), b.Self()
	for _, n := range b.Nodes(c.conn.listener.opts.Name) {
		node := kmsg.NewDescribeClusterResponseBroker()
		node.NodeID, node.Host, node.Port, node.Rack = n.ID, n.Host, n.Port, n.rack()
		r.Brokers = append(r.Brokers, node)
		if n.ID == b.Controller() {
			r.ControllerID = n.ID
		}
	}
	if q.IncludeClusterAuthorizedOperations {
		r.ClusterAuthorizedOperations = c.operations(kmsg.ACLResourceTypeCluster, clusterName)
	}
	return r
}
