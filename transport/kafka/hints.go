package kafka

import "slices"

// hints tell a client who leads partitions, so that it need not ask (KIP-951).
type hints struct {
	broker Broker
	listed []Node // those that clients of the listener reach
	nodes  []Node // of the leaders that were told
}

func (c *call) newHints() *hints {
	return &hints{broker: c.broker(), listed: c.broker().Nodes(c.conn.listener.opts.Name)}
}

// leader is who leads a partition, -1 when that is nobody whom the client reaches.
func (h *hints) leader(topic string, number int32) (node, epoch int32) {
	node, epoch = h.broker.Leader(topic, number)
	i := slices.IndexFunc(h.listed, func(n Node) bool { return n.ID == node })
	if i < 0 {
		return -1, -1
	}
	if !slices.Contains(h.nodes, h.listed[i]) {
		h.nodes = append(h.nodes, h.listed[i])
	}
	return node, epoch
}

// rack is the node's rack as answers have it.
func (n *Node) rack() *string {
	if n.Rack == "" {
		return nil
	}
	return &n.Rack
}
