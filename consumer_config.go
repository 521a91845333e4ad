package billet

import (
	"fmt"
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
// neither, and partitions are assigned later.
type ConsumerConfig struct {
	// Topics are read with all their partitions, those added later included,
	// which start at Earliest whatever StartAt says, so that nothing is missed.
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
}

// Defaults and bounds of ConsumerConfig.
const (
	defaultMaxPollBytes = 1 << 20
	minMaxPollBytes     = 1 << 10
	maxMaxPollBytes     = 1 << 30
)

// EnsureDefaults fills in what is zero. NewConsumer calls it.
func (c *ConsumerConfig) EnsureDefaults() { setDefault(&c.MaxPollBytes, defaultMaxPollBytes) }

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
	return nil
}
