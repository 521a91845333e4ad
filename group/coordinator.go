package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// clientBytesMax is how much is kept of what a client calls itself, and of where it is.
const clientBytesMax = 4 << 10

// Core is the coordinator of the groups of one partition of `__consumer_offsets`.
// It is not safe for concurrent use. The package comment says what callers owe it.
type Core struct {
	opts   Options
	groups map[string]*group
	topics *Topics
	timers timers
	sweep  timer // looks through the offsets

	written, committed Seq
	held               map[Seq][]held
	stopped            bool

	// Of the present call.
	now     time.Time
	out     Effects
	open    *group // whose write the last of out.Writes is, if more records may join it
	size    int    // bytes of that write
	answers []answer
}

// group is one group, of either protocol, with its offsets. A group that has
// offsets only is an empty classic group.
type group struct {
	id        string
	classic   *classicGroup
	consumer  *consumerGroup // nil when classic is not
	offsets   offsets
	lastWrite Seq
}

// New returns a core without groups. Apply what the partition holds, then call Loaded.
func New(opts Options) (*Core, error) {
	opts.EnsureDefaults()
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	return &Core{
		opts: opts, groups: map[string]*group{}, topics: NewTopics(nil), held: map[Seq][]held{},
		sweep: timer{kind: timerOffsets},
	}, nil
}

// Loaded ends the replay: from here members are timed.
func (c *Core) Loaded(now time.Time) Effects {
	c.begin(now)
	for _, g := range c.groups {
		if g.classic != nil {
			c.classicLoaded(g)
		} else {
			c.consumerLoaded(g)
		}
	}
	c.timers.start(&c.sweep, now.Add(c.opts.OffsetsCheckInterval))
	return c.end()
}

// SetTopics tells what topics there are. Groups look at it at their next heartbeat.
// Offsets of topics that are missing stay; TopicsDeleted removes them.
func (c *Core) SetTopics(topics *Topics) {
	c.topics = topics
}

// Handle takes a request. Its response is among the effects of this call or of a
// later one.
func (c *Core) Handle(now time.Time, request Request) Effects {
	c.begin(now)
	r := &request
	r.ClientID = r.ClientID[:min(len(r.ClientID), clientBytesMax)]
	r.ClientHost = r.ClientHost[:min(len(r.ClientHost), clientBytesMax)]
	if c.stopped {
		c.answers = append(c.answers, answer{to: r, body: Failure(r.Body, kerr.NOT_COORDINATOR)})
		return c.end()
	}
	switch body := r.Body.(type) {
	case *kmsg.JoinGroupRequest:
		c.joinGroup(r, body)
	case *kmsg.SyncGroupRequest:
		c.syncGroup(r, body)
	case *kmsg.HeartbeatRequest:
		c.heartbeat(r, body)
	case *kmsg.LeaveGroupRequest:
		c.leaveGroup(r, body)
	case *kmsg.ConsumerGroupHeartbeatRequest:
		c.consumerGroupHeartbeat(r, body)
	case *kmsg.OffsetCommitRequest:
		c.offsetCommit(r, body)
	case *kmsg.OffsetFetchRequest:
		c.offsetFetch(r, body)
	case *kmsg.OffsetDeleteRequest:
		c.offsetDelete(r, body)
	case *kmsg.ListGroupsRequest:
		c.listGroups(r, body)
	case *kmsg.DescribeGroupsRequest:
		c.describeGroups(r, body)
	case *kmsg.ConsumerGroupDescribeRequest:
		c.consumerGroupDescribe(r, body)
	case *kmsg.DeleteGroupsRequest:
		c.deleteGroups(r, body)
	default:
		c.respond(nil, r, Failure(body, kerr.UNSUPPORTED_VERSION))
	}
	return c.end()
}

// Tick lets pass what is due. Give the core the requests that wait first: a caller
// that was held up must not find its members silent for that.
func (c *Core) Tick(now time.Time) Effects {
	c.begin(now)
	for !c.stopped {
		t := c.timers.due(now)
		if t == nil {
			break
		}
		switch t.kind {
		case timerSession:
			c.sessionExpired(t.group, t.member)
		case timerPending:
			c.pendingExpired(t.group, t.member)
		case timerJoin:
			c.joinDue(t.group)
		case timerSync:
			c.syncDue(t.group)
		case timerConsumerSession, timerConsumerRevoking:
			c.consumerExpired(t.group, t.member)
		case timerOffsets:
			c.expireOffsets()
			c.timers.start(t, now.Add(c.opts.OffsetsCheckInterval))
		}
	}
	return c.end()
}

// Committed tells that all writes up to seq are committed.
func (c *Core) Committed(seq Seq) Effects {
	c.begin(c.now)
	for !c.stopped && c.committed < min(seq, c.written) {
		c.committed++
		for _, h := range c.held[c.committed] {
			c.out.Responses = append(c.out.Responses, Response{h.to.Token, h.body})
		}
		delete(c.held, c.committed)
	}
	return c.end()
}

// Stop ends the core: a write failed, or the partition is led elsewhere. All that
// wait are answered with code, such as NOT_COORDINATOR or, after a write failed,
// COORDINATOR_NOT_AVAILABLE: whether it is in the log is not known, so the log has
// to be read again, by another core.
func (c *Core) Stop(code int16) Effects {
	c.begin(c.now)
	if c.stopped {
		return c.end()
	}
	for seq := c.committed + 1; seq <= c.written; seq++ {
		for _, h := range c.held[seq] {
			c.out.Responses = append(c.out.Responses, Response{h.to.Token, Failure(h.to.Body, code)})
		}
	}
	for _, g := range c.groups {
		if g.classic == nil {
			continue
		}
		for _, m := range g.classic.members {
			for _, r := range []*Request{m.join, m.sync} {
				if r != nil {
					c.out.Responses = append(c.out.Responses, Response{r.Token, Failure(r.Body, code)})
				}
			}
		}
	}
	c.stopped = true
	c.groups, c.held, c.timers = map[string]*group{}, map[Seq][]held{}, nil
	return c.end()
}

func (c *Core) begin(now time.Time) {
	c.now = now
	c.out = Effects{}
	c.open = nil
	c.answers = c.answers[:0]
}

// end decides what each answer waits for: all that its group has written, this
// call included. So nobody is told what a crash could take back.
func (c *Core) end() Effects {
	for _, a := range c.answers {
		last := c.written
		if a.group != nil {
			last = a.group.lastWrite
		}
		if last <= c.committed || c.stopped {
			c.out.Responses = append(c.out.Responses, Response{a.to.Token, a.body})
			continue
		}
		c.held[last] = append(c.held[last], held{a.to, a.body})
	}
	clear(c.answers)
	c.out.Wake = c.timers.next()
	out := c.out
	c.out = Effects{}
	return out
}

// respond answers a request with what is known of a group, or of all when it is nil.
func (c *Core) respond(g *group, to *Request, body kmsg.Response) {
	c.answers = append(c.answers, answer{g, to, body})
}

// fail answers a request with nothing but an error.
func (c *Core) fail(g *group, to *Request, code int16) {
	c.respond(g, to, Failure(to.Body, code))
}

// write appends records to the group's write of this call, or begins another one
// when it is full. What a request changes can so be committed in part: every order
// of records is such that a core which reads only the first ones goes on from there.
func (c *Core) write(g *group, records ...Record) {
	for _, r := range records {
		size := len(r.Key) + len(r.Value) + recordOverhead
		if c.open != g || c.size+size > c.opts.WriteBytesMax {
			c.written++
			c.open, c.size = g, 0
			g.lastWrite = c.written
			c.out.Writes = append(c.out.Writes, Write{Seq: c.written, Time: c.now})
		}
		c.size += size
		last := &c.out.Writes[len(c.out.Writes)-1]
		last.Records = append(last.Records, r)
	}
}

// recordOverhead is what a batch has for a record besides key and value, at most.
const recordOverhead = 32

// create makes an empty classic group, or returns nil when there are too many.
func (c *Core) create(id string) *group {
	if len(c.groups) >= c.opts.GroupsMax {
		return nil
	}
	return c.put(id)
}

func (c *Core) put(id string) *group {
	g := &group{id: id, offsets: offsets{}, lastWrite: c.written}
	g.classic = newClassicGroup(g, c.now)
	c.groups[id] = g
	return g
}

// isEmpty tells that a group has no members, and none on their way.
func (g *group) isEmpty() bool {
	if g.consumer != nil {
		return len(g.consumer.members) == 0
	}
	return g.classic.state == stateEmpty
}

// drop forgets a group that is empty, and its timers.
func (c *Core) drop(g *group) {
	if g.classic != nil {
		c.dropPending(g.classic)
	}
	delete(c.groups, g.id)
}

// tombstones deletes what the log holds of an empty group besides its offsets.
func (g *group) tombstones() []Record {
	if g.consumer != nil {
		return g.consumer.tombstones(g.id)
	}
	if g.classic.persisted {
		return []Record{{Key: groupMetadataKey(g.id)}}
	}
	return nil
}
