package differ

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// caller is one of several clients of a play: it may wait for an answer while others
// ask.
type caller struct {
	play    *play
	name    string
	conn    *conn
	pending kmsg.Request
}

func (p *play) caller(name string) *caller {
	c, err := dial(p.address)
	if err != nil {
		p.note("dial", lost(err))
		panic(endOfPlay{})
	}
	return &caller{play: p, name: name, conn: c}
}

// send asks; receive has the answer.
func (c *caller) send(q kmsg.Request, version int16) {
	if err := c.conn.sendRequest(q, version); err != nil {
		c.play.note(c.name+" sends", lost(err))
		panic(endOfPlay{})
	}
	c.pending = q
}

// receive waits for the answer and notes it.
func (c *caller) receive(label string) kmsg.Response {
	q := c.pending
	label = fmt.Sprintf("%s: %s %s v%d", c.name, label, kmsg.NameForKey(q.Key()), q.GetVersion())
	r, err := c.conn.receive(q)
	if err != nil {
		c.play.note(label, lost(err))
		panic(endOfPlay{})
	}
	c.play.nameMembers(r)
	c.play.note(label, c.play.names.lines(r)...)
	return r
}

func (c *caller) ask(label string, q kmsg.Request, version int16) kmsg.Response {
	c.send(q, version)
	return c.receive(label)
}

// nameMembers gives members' ids names, in the order in which they turn up.
func (p *play) nameMembers(r kmsg.Response) {
	add := func(id string) {
		if _, ok := p.names.strings[id]; !ok && id != "" {
			p.names.text(id, fmt.Sprintf("member %d", len(p.names.strings)+1))
		}
	}
	switch r := r.(type) {
	case *kmsg.JoinGroupResponse:
		add(r.MemberID)
	case *kmsg.ConsumerGroupHeartbeatResponse:
		if r.MemberID != nil {
			add(*r.MemberID)
		}
	}
}

// awaitGroup waits until a classic group is in a state with a number of members.
func (p *play) awaitGroup(group, state string, members int) {
	until(p, fmt.Sprintf("the state %s with %d members", state, members), func() kmsg.Request {
		q := kmsg.NewPtrDescribeGroupsRequest()
		q.Groups = []string{group}
		return q
	}, func(r *kmsg.DescribeGroupsResponse) bool {
		return r.Groups[0].State == state && len(r.Groups[0].Members) == members
	})
}

// coordinator waits until there is one: the first request may have to make it.
func (p *play) coordinator(group string) {
	until(p, "a coordinator", func() kmsg.Request { return findOf(0, group) }, func(r *kmsg.FindCoordinatorResponse) bool {
		return r.ErrorCode == 0 && (len(r.Coordinators) == 0 || r.Coordinators[0].ErrorCode == 0)
	})
	// It may still be loading.
	until(p, "the coordinator", func() kmsg.Request { return offsetFetchOf(group) }, func(r *kmsg.OffsetFetchResponse) bool {
		loading := func(code int16) bool { return code == 14 || code == 15 || code == 16 }
		return !loading(r.ErrorCode) && (len(r.Groups) == 0 || !loading(r.Groups[0].ErrorCode))
	})
}

func findOf(kind int8, keys ...string) *kmsg.FindCoordinatorRequest {
	q := kmsg.NewPtrFindCoordinatorRequest()
	q.CoordinatorType, q.CoordinatorKeys = kind, keys
	if len(keys) > 0 {
		q.CoordinatorKey = keys[0]
	}
	return q
}
