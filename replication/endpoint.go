package replication

import (
	"context"
	"fmt"
	"slices"
)

// Endpoint is where a node serves clients.
type Endpoint struct {
	Name string `json:"name"` // of the listener
	Host string `json:"host"`
	Port int32  `json:"port"`
}

// The bounds of endpoints.
const (
	endpointsMax    = 16  // of one node
	endpointTextMax = 255 // bytes of a name and of a host
	portMax         = 65535
)

func checkEndpoints(list []Endpoint) error {
	if len(list) > endpointsMax {
		return fmt.Errorf("%w: %d endpoints, at most %d are possible", ErrInvalidConfig, len(list), endpointsMax)
	}
	for i, e := range list {
		switch {
		case len(e.Name) > endpointTextMax, e.Host == "", len(e.Host) > endpointTextMax, e.Port < 1, e.Port > portMax:
			return fmt.Errorf("%w: endpoint %q at host %q, port %d: a host of up to %d bytes and a port from 1 to %d are needed", ErrInvalidConfig, e.Name, e.Host, e.Port, endpointTextMax, portMax)
		case slices.ContainsFunc(list[:i], func(o Endpoint) bool { return o.Name == e.Name }):
			return fmt.Errorf("%w: two endpoints are named %q", ErrInvalidConfig, e.Name)
		}
	}
	return nil
}

func (h *Host) endpoints() []Endpoint { return *h.listeners.Load() }

func (h *Host) setEndpoints(list []Endpoint) {
	list = slices.Clone(list)
	h.listeners.Store(&list)
}

// SetEndpoints says where this node serves clients from now on, and tells the cluster. When it returns an error other than ErrInvalidConfig the cluster
// is told later.
func (c *Controller) SetEndpoints(ctx context.Context, list []Endpoint) error {
	if err := checkEndpoints(list); err != nil {
		return err
	}
	c.host.setEndpoints(list)
	return c.register(ctx)
}

// tellEndpoints tells the cluster again when its records have another list: an earlier one may have been on its way for long.
func (c *Controller) tellEndpoints(ctx context.Context) {
	c.mu.RLock()
	n, ok := c.mu.nodes[c.host.cfg.Node.ID]
	c.mu.RUnlock()
	if !ok || n.Mode == NodeRemoved || n.Dir != c.host.cfg.Node.Dir || slices.Equal(n.Endpoints, c.host.endpoints()) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	// Who governs comes back to it, and so waits neither for a lost answer nor until it is seen here.
	if _, _, err := submit(ctx, c, "register", c.host.registration(), (*Controller).registerNode); err != nil && ctx.Err() == nil {
		c.host.logger.Info("where this node serves clients is not told yet", "err", err)
	}
}

// knows says whether a node belongs to the cluster.
func (c *Controller) knows(id int32) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	n, ok := c.mu.nodes[id]
	return ok && n.Mode != NodeRemoved
}
