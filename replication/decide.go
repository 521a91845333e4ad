package replication

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"
)

// How a decision gets to the node that leads the metadata, and is taken there.

// decide takes a decision on this node, which must lead the metadata: alone, with a view that holds everything decided before. The context
// that f gets ends with the controller as well.
func (c *Controller) decide(ctx context.Context, f func(ctx context.Context) error) (err error) {
	done, err := c.host.begin()
	if err != nil {
		return err
	}
	defer done()
	merged, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(fmt.Errorf("%w: controller", ErrClosed)) })()
	defer func() {
		if err != nil && ctx.Err() == nil && c.ctx.Err() != nil && !errors.Is(err, ErrClosed) {
			err = fmt.Errorf("%w: controller: %w", ErrClosed, err)
		}
	}()
	select {
	case c.admin <- struct{}{}:
		defer func() { <-c.admin }()
	case <-merged.Done():
		return context.Cause(merged)
	}
	if err := cmpError(context.Cause(merged), c.catchUp(merged)); err != nil {
		return err
	}
	return f(merged)
}

// catchUp makes sure that this node leads, that nothing of its own is undecided, and that the view is complete.
func (c *Controller) catchUp(ctx context.Context) error {
	if c.lead.open != nil {
		select {
		case <-c.lead.open:
			c.lead.open = nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if c.meta().Epoch() == 0 {
		return fmt.Errorf("%w: %s", ErrNotLeader, c.meta().name())
	}
	if err := c.read(ctx); err != nil {
		return err
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.mu.broken
}

// decision is a kind of request to the node that leads the metadata. The names are on the wire.
type decision struct {
	name string
	do   func(c *Controller, ctx context.Context, args json.RawMessage) (any, error)
}

// takes makes a decision of a typed function.
func takes[Q, R any](name string, f func(c *Controller, ctx context.Context, q Q) (R, error)) decision {
	return decision{name, func(c *Controller, ctx context.Context, args json.RawMessage) (any, error) {
		var q Q
		if err := json.Unmarshal(args, &q); err != nil {
			return nil, fmt.Errorf("replication: request %s: %w", name, err)
		}
		return f(c, ctx, q)
	}}
}

// decisions are all of them.
var decisions = sync.OnceValue(func() map[string]decision {
	m := map[string]decision{}
	for _, d := range []decision{
		takes("create-topic", (*Controller).createTopic), takes("delete-topic", (*Controller).deleteTopic),
		takes("cancel-reassign", (*Controller).cancelReassign), takes("delete-records", (*Controller).deleteRecords),
		takes("set-entries", (*Controller).setEntries), takes("ensure-internal", (*Controller).ensureInternal),
		takes("alter-topic", (*Controller).alterTopic), takes("add-partitions", (*Controller).addPartitions),
		takes("producer-ids", (*Controller).producerIDs), takes("register", (*Controller).registerNode),
		takes("reassign", (*Controller).reassign), takes("node-mode", (*Controller).setNodeMode),
		takes("report-lost", (*Controller).replicaLost), takes("recover-partition", (*Controller).recoverPartition),
	} {
		m[d.name] = d
	}
	return m
})

// The requests between nodes that the controller answers.
const (
	requestDecide  requestKind = 16 // to who leads the metadata
	requestPrepare requestKind = 17 // make the files of new replicas
	requestGroup   requestKind = 18 // tell of a group, to who leads it
	requestStep    requestKind = 19 // change a group's membership, to who leads it
	requestKickOff requestKind = 21 // have new groups elect their first leader
	requestDeleted requestKind = 23 // read of records that were deleted, to who has a replica
)

type decideRequest struct {
	Name string          `json:"name"`
	Args json.RawMessage `json:"args"`
}

// decideAnswer holds what came of it, and up to where the metadata must be read to see it.
type decideAnswer struct {
	Body json.RawMessage `json:"body,omitempty"`
	Next int64           `json:"next,omitempty"`
	Code uint16          `json:"code,omitempty"`
	Err  string          `json:"error,omitempty"`
}

func (c *Controller) serve() {
	c.host.serve(requestDecide, c.answerDecide)
	c.host.serve(requestPrepare, c.answerPrepare)
	c.host.serve(requestGroup, c.answerGroup)
	c.host.serve(requestStep, c.answerStep)
	c.host.serve(requestKickOff, c.answerKickOff)
	c.host.serve(requestDeleted, c.answerDeleted)
	c.host.serve(requestReplica, c.answerReplica)
	c.host.serve(requestRebuild, c.answerRebuild)
}

func (c *Controller) unserve() {
	for _, k := range []requestKind{requestDecide, requestPrepare, requestGroup, requestStep, requestKickOff, requestDeleted, requestReplica, requestRebuild} {
		c.host.serve(k, nil)
	}
}

func (c *Controller) answerDecide(ctx context.Context, from int32, payload []byte) ([]byte, error) {
	var q decideRequest
	if err := json.Unmarshal(payload, &q); err != nil {
		return nil, fmt.Errorf("replication: request of node %d: %w", from, err)
	}
	d, ok := decisions()[q.Name]
	if !ok {
		return nil, fmt.Errorf("replication: node %d asks for %q, which this program does not know: use a newer one", from, q.Name)
	}
	var a decideAnswer
	body, err := d.do(c, ctx, q.Args)
	if err == nil {
		a.Body, err = json.Marshal(body)
	}
	if err != nil {
		a = decideAnswer{Code: codeOf(err), Err: err.Error()}
	}
	c.mu.RLock()
	a.Next = c.mu.next
	c.mu.RUnlock()
	return json.Marshal(a)
}

// ask has a decision taken, here or where the metadata is led, and waits until this node's view holds it. It looks for who leads until ctx ends.
func ask[Q, R any](ctx context.Context, c *Controller, name string, q Q, do func(*Controller, context.Context, Q) (R, error)) (R, error) {
	r, next, err := submit(ctx, c, name, q, do)
	if err != nil {
		return r, err
	}
	return r, c.await(ctx, func() bool { return c.mu.next >= next || c.mu.broken != nil })
}

// submit is ask for who does not need the decision in this node's view; next is up to where the metadata must be read to see it.
func submit[Q, R any](ctx context.Context, c *Controller, name string, q Q, do func(*Controller, context.Context, Q) (R, error)) (r R, next int64, err error) {
	for {
		r, next, err = submitOnce(ctx, c, name, q, do)
		if err == nil || !elsewhere(err) {
			return r, next, err
		}
		select {
		case <-time.After(controllerPause):
		case <-ctx.Done():
			return r, 0, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-c.ctx.Done():
			return r, 0, fmt.Errorf("%w: controller: %w", ErrClosed, err)
		}
	}
}

// askPatience is how long askAgain waits for one answer: longer than decisions take that disks and elections hold up.
const askPatience = 10 * time.Second

// askAgain is ask for what does no harm when it is decided twice: it goes on when the outcome is unknown, and when no answer comes for so long that it may
// never come.
func askAgain[Q, R any](ctx context.Context, c *Controller, name string, q Q, do func(*Controller, context.Context, Q) (R, error)) (R, error) {
	for {
		attempt, cancel := context.WithTimeout(ctx, c.patience)
		r, err := ask(attempt, c, name, q, do)
		late := attempt.Err() != nil
		cancel()
		if err == nil || !errors.Is(err, ErrAmbiguous) && !late || ctx.Err() != nil {
			return r, err
		}
		select {
		case <-time.After(controllerPause):
		case <-ctx.Done():
			return r, err
		case <-c.ctx.Done():
			return r, err
		}
	}
}

// elsewhere says whether a decision was certainly not taken and may be where the metadata is led by now.
func elsewhere(err error) bool {
	return (errors.Is(err, ErrNotLeader) || errors.Is(err, ErrUnreachable)) && !errors.Is(err, ErrAmbiguous)
}

func submitOnce[Q, R any](ctx context.Context, c *Controller, name string, q Q, do func(*Controller, context.Context, Q) (R, error)) (r R, next int64, err error) {
	leader, ok := c.leaderNode()
	switch {
	case !ok:
		if state, cause := c.meta().State(); state.stopped() && cause != nil {
			return r, 0, cause
		}
		return r, 0, fmt.Errorf("%w: nobody leads %s", ErrNotLeader, MetadataTopic)
	case leader == c.host.cfg.Node.ID:
		r, err = do(c, ctx, q)
		return r, 0, err
	}
	var a decideAnswer
	if err := c.host.callJSON(ctx, leader, requestDecide, decideRequest{Name: name, Args: mustJSON(q)}, &a); err != nil {
		return r, 0, err
	}
	if a.Err != "" {
		return r, 0, undecided(errorOf(leader, a.Code, a.Err))
	}
	if err := json.Unmarshal(a.Body, &r); err != nil {
		return r, 0, fmt.Errorf("replication: answer of node %d: %w", leader, err)
	}
	return r, a.Next, nil
}

// undecided makes an error of what another node answered. When that closed, or gave up, before the decision was taken to its end, nobody knows what came
// of it, and it is not this node that is closed.
func undecided(err error) error {
	switch {
	case errors.Is(err, ErrClosed):
		return fmt.Errorf("%w: %v", ErrAmbiguous, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%w: %w", ErrAmbiguous, err)
	}
	return err
}

// leaderNode is the node that leads the metadata, as far as known here.
func (c *Controller) leaderNode() (int32, bool) {
	replica, _, ok := c.host.guard.leader(metadataShard)
	return nodeOf(replica), ok && replica != 0
}

// order has another node do what the controller decided.
func (c *Controller) order(ctx context.Context, node int32, kind requestKind, q any) error {
	var a decideAnswer
	if err := c.host.callJSON(ctx, node, kind, q, &a); err != nil {
		return err
	}
	if a.Err != "" {
		return errorOf(node, a.Code, a.Err)
	}
	return nil
}

// orderFiles is order for files that no record names yet: when there is no answer they may be there or not, and nothing is decided either way.
func (c *Controller) orderFiles(ctx context.Context, node int32, kind requestKind, q any) error {
	err := c.order(ctx, node, kind, q)
	if isAmbiguous(err) {
		return fmt.Errorf("%w: node %d did not answer: %v", ErrUnreachable, node, err)
	}
	return err
}

// carriedOut is the answer to an order.
func carriedOut(err error) ([]byte, error) {
	var a decideAnswer
	if err != nil {
		a = decideAnswer{Code: codeOf(err), Err: err.Error()}
	}
	return json.Marshal(a)
}
