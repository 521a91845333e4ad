package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/billetlog/billet/internal/kerr"
)

// offsets are what a group has committed, by topic and partition.
type offsets map[string]map[int32]commit

// commit is where a group is in a partition.
type commit struct {
	offset      int64
	leaderEpoch int32
	metadata    string
	at          time.Time
	expires     time.Time // zero unless an old client said when
	topic       TopicID   // zero when it was not known
}

func (o offsets) put(topic string, partition int32, one commit) {
	if o[topic] == nil {
		o[topic] = map[int32]commit{}
	}
	o[topic][partition] = one
}

func (o offsets) remove(topic string, partition int32) {
	delete(o[topic], partition)
	if len(o[topic]) == 0 {
		delete(o, topic)
	}
}

// isForeign says whether an offset is of another topic than the one that has the name
// now. One of the two was deleted: which one, a node that learns of it late cannot tell,
// so the offset stays in the log.
func (c *Core) isForeign(name string, one commit) bool {
	t := c.topics.byName[name]
	return t != nil && one.topic != TopicID{} && one.topic != t.ID
}

// committedIn are the partitions of a topic that a group has committed offsets of.
func (c *Core) committedIn(g *group, name string) (partitions []int32) {
	for _, p := range sortedKeys(g.offsets[name]) {
		if !c.isForeign(name, g.offsets[name][p]) {
			partitions = append(partitions, p)
		}
	}
	return partitions
}

// offsetCommit takes offsets of members, of consumers that manage themselves, and of
// administrators.
func (c *Core) offsetCommit(r *Request, body *kmsg.OffsetCommitRequest) {
	g := c.groups[body.Group]
	code := kerr.NONE
	generation := body.Generation
	if body.Version < 1 {
		generation = -1
	}
	switch {
	case body.Group == "" || !areNames(&body.Group):
		code = kerr.INVALID_GROUP_ID
	case g == nil && generation >= 0 && body.Version >= 9:
		code = kerr.GROUP_ID_NOT_FOUND
	case g == nil && generation >= 0:
		code = kerr.ILLEGAL_GENERATION
	case g == nil:
	case g.classic != nil:
		code = c.validateClassicCommit(g.classic, generation, body)
	default:
		code = g.consumer.validateCommit(c.topics, generation, body)
	}
	if code == kerr.NONE && g == nil {
		if g = c.create(body.Group); g == nil {
			code = kerr.COORDINATOR_NOT_AVAILABLE
		}
	}
	if code != kerr.NONE {
		c.fail(g, r, code)
		return
	}
	if g.classic != nil {
		if m := g.classic.members[body.MemberID]; m != nil && !m.isNew {
			c.touch(m)
		}
	}
	response := body.ResponseKind().(*kmsg.OffsetCommitResponse)
	response.Topics = commitResults(body, kerr.NONE)
	for i := range body.Topics {
		c.commitTopic(g, body, &body.Topics[i], &response.Topics[i])
	}
	c.respond(g, r, response)
	if g.classic != nil {
		c.dropIfUnused(g)
	}
}

func (c *Core) commitTopic(g *group, body *kmsg.OffsetCommitRequest, topic *kmsg.OffsetCommitRequestTopic, result *kmsg.OffsetCommitResponseTopic) {
	name, known := c.topicName(topic.Topic, topic.TopicID, body.Version >= 10)
	var id TopicID
	if t := c.topics.byName[name]; t != nil {
		id = t.ID
	}
	for i := range topic.Partitions {
		p := &topic.Partitions[i]
		one := commit{offset: p.Offset, leaderEpoch: -1, at: millis(c.now), topic: id}
		if body.Version >= 6 {
			one.leaderEpoch = p.LeaderEpoch
		}
		if p.Metadata != nil {
			one.metadata = *p.Metadata
		}
		if body.Version == 1 && p.Timestamp >= 0 {
			one.at = time.UnixMilli(p.Timestamp)
		}
		if body.Version >= 2 && body.Version <= 4 && body.RetentionTimeMillis >= 0 {
			one.expires = one.at.Add(time.Duration(min(body.RetentionTimeMillis, retentionMillisMax)) * time.Millisecond)
		}
		switch {
		case !known:
			result.Partitions[i].ErrorCode = kerr.UNKNOWN_TOPIC_ID
		case !areNames(&name):
			result.Partitions[i].ErrorCode = kerr.INVALID_TOPIC_EXCEPTION
		case len(one.metadata) > c.opts.OffsetMetadataBytesMax:
			result.Partitions[i].ErrorCode = kerr.OFFSET_METADATA_TOO_LARGE
		default:
			g.offsets.put(name, p.Partition, one)
			c.write(g, commitRecord(g.id, name, p.Partition, one))
		}
	}
}

// retentionMillisMax is the longest retention that a commit can ask for: a century.
const retentionMillisMax = 100 * 365 * 24 * 3600 * 1000

// millis is a time as the log can hold it.
func millis(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()) }

// topicName finds a topic that a request names, or has the id of.
func (c *Core) topicName(name string, id TopicID, byID bool) (string, bool) {
	if !byID {
		return name, true
	}
	if t := c.topics.byID[id]; t != nil {
		return t.Name, true
	}
	return "", false
}

// validateClassicCommit tells whether a commit may change the group's offsets.
func (c *Core) validateClassicCommit(k *classicGroup, generation int32, body *kmsg.OffsetCommitRequest) int16 {
	if generation < 0 && k.state == stateEmpty {
		return kerr.NONE // nobody's partitions are concerned
	}
	if code := k.validate(body.MemberID, body.InstanceID); code != kerr.NONE {
		return code
	}
	if generation != k.generation {
		return kerr.ILLEGAL_GENERATION
	}
	if k.state == stateCompleting {
		return kerr.REBALANCE_IN_PROGRESS
	}
	return kerr.NONE
}

// offsetFetch tells offsets, every partition that is asked for: one without has -1.
func (c *Core) offsetFetch(r *Request, body *kmsg.OffsetFetchRequest) {
	response := body.ResponseKind().(*kmsg.OffsetFetchResponse)
	if body.Version >= 8 {
		for i := range body.Groups {
			response.Groups = append(response.Groups, c.fetchGroup(&body.Groups[i], body.Version))
		}
		if len(body.Groups) == 1 {
			c.respond(c.groupOrNew(body.Groups[0].Group), r, response)
			return
		}
		c.respond(nil, r, response)
		return
	}
	g := c.groupOrNew(body.Group)
	if body.Group == "" {
		c.fail(g, r, kerr.INVALID_GROUP_ID)
		return
	}
	for i := range body.Topics {
		response.Topics = append(response.Topics, c.fetchTopicOld(g, body.Topics[i].Topic, body.Topics[i].Partitions))
	}
	if body.Topics == nil && body.Version >= 2 {
		for _, name := range sortedKeys(g.offsets) {
			if partitions := c.committedIn(g, name); len(partitions) > 0 {
				response.Topics = append(response.Topics, c.fetchTopicOld(g, name, partitions))
			}
		}
	}
	c.respond(g, r, response)
}

// groupOrNew returns the group, or one to read that is not kept.
func (c *Core) groupOrNew(id string) *group {
	if g := c.groups[id]; g != nil {
		return g
	}
	return &group{id: id, classic: newClassicGroup(nil, c.now), lastWrite: c.written}
}

func (c *Core) fetchGroup(asked *kmsg.OffsetFetchRequestGroup, version int16) kmsg.OffsetFetchResponseGroup {
	result := kmsg.NewOffsetFetchResponseGroup()
	result.Group = asked.Group
	g := c.groupOrNew(asked.Group)
	switch {
	case asked.Group == "":
		result.ErrorCode = kerr.INVALID_GROUP_ID
	case g.consumer != nil:
		result.ErrorCode = g.consumer.validateFetch(asked)
	}
	if result.ErrorCode != kerr.NONE {
		return result
	}
	for i := range asked.Topics {
		name, known := c.topicName(asked.Topics[i].Topic, asked.Topics[i].TopicID, version >= 10)
		topic := c.fetchTopic(g, name, asked.Topics[i].Partitions)
		topic.TopicID = asked.Topics[i].TopicID
		for j := range topic.Partitions {
			if !known {
				topic.Partitions[j].ErrorCode = kerr.UNKNOWN_TOPIC_ID
			}
		}
		result.Topics = append(result.Topics, topic)
	}
	if asked.Topics != nil {
		return result
	}
	for _, name := range sortedKeys(g.offsets) {
		partitions := c.committedIn(g, name)
		if len(partitions) == 0 {
			continue
		}
		topic := c.fetchTopic(g, name, partitions)
		if t := c.topics.byName[name]; t != nil {
			topic.TopicID = t.ID
		} else if version >= 10 {
			continue // it has no name there
		}
		result.Topics = append(result.Topics, topic)
	}
	return result
}

func (c *Core) fetchTopic(g *group, name string, partitions []int32) kmsg.OffsetFetchResponseGroupTopic {
	topic := kmsg.NewOffsetFetchResponseGroupTopic()
	topic.Topic = name
	for _, p := range partitions {
		one := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		one.Partition, one.Offset, one.LeaderEpoch, one.Metadata = p, -1, -1, kmsg.StringPtr("")
		if at, ok := g.offsets[name][p]; ok && !c.isForeign(name, at) {
			one.Offset, one.LeaderEpoch, one.Metadata = at.offset, at.leaderEpoch, kmsg.StringPtr(at.metadata)
		}
		topic.Partitions = append(topic.Partitions, one)
	}
	return topic
}

func (c *Core) fetchTopicOld(g *group, name string, partitions []int32) kmsg.OffsetFetchResponseTopic {
	old := kmsg.NewOffsetFetchResponseTopic()
	old.Topic = name
	for _, p := range c.fetchTopic(g, name, partitions).Partitions {
		one := kmsg.NewOffsetFetchResponseTopicPartition()
		one.Partition, one.Offset, one.LeaderEpoch, one.Metadata = p.Partition, p.Offset, p.LeaderEpoch, p.Metadata
		old.Partitions = append(old.Partitions, one)
	}
	return old
}

// offsetDelete removes offsets of topics that no member is subscribed to.
func (c *Core) offsetDelete(r *Request, body *kmsg.OffsetDeleteRequest) {
	g := c.groups[body.Group]
	switch {
	case body.Group == "":
		c.fail(nil, r, kerr.INVALID_GROUP_ID)
		return
	case g == nil:
		c.fail(nil, r, kerr.GROUP_ID_NOT_FOUND)
		return
	case g.classic != nil && g.classic.state != stateEmpty && g.classic.protocolType != consumerProtocolType:
		c.fail(g, r, kerr.NON_EMPTY_GROUP)
		return
	}
	response := body.ResponseKind().(*kmsg.OffsetDeleteResponse)
	var records []Record
	for i := range body.Topics {
		topic := kmsg.NewOffsetDeleteResponseTopic()
		topic.Topic = body.Topics[i].Topic
		subscribed := g.subscribesTo(c.topics, topic.Topic)
		for _, p := range body.Topics[i].Partitions {
			one := kmsg.NewOffsetDeleteResponseTopicPartition()
			one.Partition = p.Partition
			_, exists := g.offsets[topic.Topic][p.Partition]
			switch {
			case subscribed:
				one.ErrorCode = kerr.GROUP_SUBSCRIBED_TO_TOPIC
			case exists:
				g.offsets.remove(topic.Topic, p.Partition)
				records = append(records, Record{Key: offsetKey(g.id, topic.Topic, p.Partition)})
			}
			topic.Partitions = append(topic.Partitions, one)
		}
		response.Topics = append(response.Topics, topic)
	}
	c.write(g, records...)
	c.respond(g, r, response)
}
