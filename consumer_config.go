package billet

import (
	"fmt"
	"time"

	"github.com/billetlog/billet/group"
)

// StartAt says where a consumer begins to read a partition.
type StartAt int8

const (
	// Earliest is the first record there is. The default.
	Earliest StartAt = iota
	// Latest is after the last record there is when the partition is assigned.
	Latest
)

// OnOutOfRange says what Poll does about a position that is not there, because
// retention passed it or it was sought to beyond the end.
type OnOutOfRange int8

const (
	// FailOutOfRange returns an *OffsetError. The default.
	FailOutOfRange OnOutOfRange = iota
	// ResetToEarliest goes on at the first record there is.
	ResetToEarliest
	// ResetToLatest goes on after the last record there is.
	ResetToLatest
)

// ConsumerConfig says what a Consumer reads. Either Topics or Assign is given, or
// neither, and partitions are assigned later; in a Group, Topics or Pattern or both.
type ConsumerConfig struct {
	// Topics are read with all their partitions, those added later included,
	// which start at Earliest whatever StartAt says, so that nothing is missed. In a
	// Group the coordinator says which of them, and they need not exist yet.
	Topics []string
	// Assign are partitions by topic.
	Assign map[string][]int32
	// StartAt says where to begin. Default Earliest.
	StartAt StartAt
	// OnOutOfRange says what to do about a position that is not there. Default
	// FailOutOfRange.
	OnOutOfRange OnOutOfRange
	// ReadLocal reads partitions from this node's replica where it has one,
	// whoever leads them. That spares the network, and records come as much later
	// as the replica learns that they are committed, by a heartbeat at most. It
	// goes on where the leader cannot be reached. Default false: partitions are
	// read from the node that leads them.
	ReadLocal bool
	// MaxPollRecords bounds the records of one Poll. Default 0: no bound but
	// MaxPollBytes.
	MaxPollRecords int
	// MaxPollBytes bounds the bytes read by one Poll, before decompression; a
	// larger batch is read nevertheless. Default 1 MiB; at least 1 KiB, at most
	// 1 GiB. The consumer holds about that much memory.
	MaxPollBytes int

	// Group makes the consumer a member of that consumer group: partitions of Topics, or
	// of topics that match Pattern, are its as the group's coordinator says, and it
	// begins where the group has committed, or at StartAt. Default "": no group, and
	// none of what follows.
	Group string
	// Pattern is an expression in RE2 syntax that matches whole names of topics, those
	// made later included.
	Pattern string
	// InstanceID makes it a static member (KIP-345): who comes back under it within the
	// session, after Close or a crash, has the same partitions again, and nobody else
	// got them meanwhile. Default "": none.
	InstanceID string
	// CommitInterval is how often positions are committed by themselves: those after
	// records that were returned before the last Poll began. Default 5 s; at least
	// 10 ms; negative: only Commit and its like commit.
	CommitInterval time.Duration
	// MaxPollInterval is how long the program may take between two Polls: a consumer
	// that does not poll leaves the group, so that others get its partitions. Default
	// 5 min; at least 1 s. A rebalance may wait that long.
	MaxPollInterval time.Duration
	// OnAssign is told of partitions that are its from now on, before records of them
	// are returned; Seek may be called. OnRevoke is told of partitions that it is about
	// to give up; Commit may be called. OnLost is told of those that it has lost already,
	// when it could not be heard in time; by default OnRevoke is. They come from within
	// Poll, OnRevoke also from Close.
	OnAssign, OnRevoke, OnLost func([]TopicPartition)
	// Assignor is how partitions are spread: "uniform" or "range". Default: as the
	// group does.
	Assignor string
	// Rack is where the consumer runs, and ClientID what it calls itself, for who looks
	// at the group. Default of the second: "billet".
	Rack, ClientID string
}

// Defaults and bounds of ConsumerConfig.
const (
	defaultMaxPollBytes = 1 << 20
	minMaxPollBytes     = 1 << 10
	maxMaxPollBytes     = 1 << 30

	defaultCommitInterval  = 5 * time.Second
	minCommitInterval      = 10 * time.Millisecond
	defaultMaxPollInterval = 5 * time.Minute
	minMaxPollInterval     = time.Second
	defaultClientID        = "billet"
)

// EnsureDefaults fills in what is zero. NewConsumer calls it.
func (c *ConsumerConfig) EnsureDefaults() {
	setDefault(&c.MaxPollBytes, defaultMaxPollBytes)
	setDefault(&c.CommitInterval, defaultCommitInterval)
	setDefault(&c.MaxPollInterval, defaultMaxPollInterval)
	setDefault(&c.ClientID, defaultClientID)
}

// Validate returns an ErrInvalidConfig that names the first field out of bounds.
// It expects defaults to be filled in.
func (c *ConsumerConfig) Validate() error {
	switch {
	case len(c.Topics) > 0 && len(c.Assign) > 0:
		return fmt.Errorf("billet: %w: both Topics and Assign are given, allowed is one", ErrInvalidConfig)
	case c.StartAt < Earliest || c.StartAt > Latest:
		return invalidField("StartAt", int(c.StartAt), "one of the constants")
	case c.OnOutOfRange < FailOutOfRange || c.OnOutOfRange > ResetToLatest:
		return invalidField("OnOutOfRange", int(c.OnOutOfRange), "one of the constants")
	case c.MaxPollRecords < 0:
		return invalidField("MaxPollRecords", c.MaxPollRecords, "0 or more")
	case c.MaxPollBytes < minMaxPollBytes || c.MaxPollBytes > maxMaxPollBytes:
		return invalidField("MaxPollBytes", c.MaxPollBytes, "%d to %d", minMaxPollBytes, maxMaxPollBytes)
	}
	return c.validateGroup()
}

func (c *ConsumerConfig) validateGroup() error {
	switch {
	case c.Group == "" && (c.Pattern != "" || c.InstanceID != "" || c.OnAssign != nil || c.OnRevoke != nil || c.OnLost != nil):
		return invalidField("Group", `""`, "a name, for what else is given")
	case c.Group == "":
		return nil
	case len(c.Assign) > 0:
		return invalidField("Assign", c.Assign, "none in a group, whose coordinator assigns: use Topics or Pattern")
	case c.CommitInterval > 0 && c.CommitInterval < minCommitInterval:
		return invalidField("CommitInterval", c.CommitInterval, "at least %v, or negative", minCommitInterval)
	case c.MaxPollInterval < minMaxPollInterval:
		return invalidField("MaxPollInterval", c.MaxPollInterval, "at least %v", minMaxPollInterval)
	case c.Assignor != "" && c.Assignor != group.AssignorUniform && c.Assignor != group.AssignorRange:
		return invalidField("Assignor", c.Assignor, "%q, %q, or none", group.AssignorUniform, group.AssignorRange)
	}
	return nil
}
