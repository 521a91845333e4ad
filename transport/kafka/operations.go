package kafka

import "github.com/twmb/franz-go/pkg/kmsg"

// operations are those that the client may do, as the bits that answers have.
func (c *call) operations(kind kmsg.ACLResourceType, name string) int32 {
	var bits int32
	for _, op := range supportedOperations(kind) {
		if c.allowed(op, kind, name) {
			bits |= 1 << op
		}
	}
	return bits
}

// supportedOperations are those that Kafka knows of a kind of thing.
func supportedOperations(kind kmsg.ACLResourceType) []kmsg.ACLOperation {
	switch kind {
	case kmsg.ACLResourceTypeTopic:
		return []kmsg.ACLOperation{
			kmsg.ACLOperationRead, kmsg.ACLOperationWrite, kmsg.ACLOperationCreate, kmsg.ACLOperationDescribe, kmsg.ACLOperationDelete,
			kmsg.ACLOperationAlter, kmsg.ACLOperationDescribeConfigs, kmsg.ACLOperationAlterConfigs,
		}
	case kmsg.ACLResourceTypeGroup:
		return []kmsg.ACLOperation{
			kmsg.ACLOperationRead, kmsg.ACLOperationDescribe, kmsg.ACLOperationDelete, kmsg.ACLOperationDescribeConfigs, kmsg.ACLOperationAlterConfigs,
		}
	case kmsg.ACLResourceTypeCluster:
		return []kmsg.ACLOperation{
			kmsg.ACLOperationCreate, kmsg.ACLOperationClusterAction, kmsg.ACLOperationDescribeConfigs, kmsg.ACLOperationAlterConfigs,
			kmsg.ACLOperationIdempotentWrite, kmsg.ACLOperationAlter, kmsg.ACLOperationDescribe,
		}
	}
	return nil
}
