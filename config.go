package billet

import (
	"fmt"
	"log/slog"
	"maps"
	"time"
)

// Config says how to open a Log. Only Dir is required.
type Config struct {
	// Dir is the directory of this node, made if it is not there. One open Log
	// at a time may have it. Required.
	Dir string
	// NodeID is this node's id, Kafka's broker id. Default 1; above 0. A
	// directory keeps the id it was made with.
	NodeID int32
	// Logger gets what an operator may want to read. Default nil: nothing is
	// logged.
	Logger *slog.Logger
	// OnEvent is called with every Event, in order, from one goroutine of its
	// own. While it does not return, up to 1,024 events wait and further ones
	// are dropped and counted. It must not call Log.Close. Default nil.
	OnEvent func(Event)
	// JournalBytes is the size on disk of the journal by which small durable
	// records of all partitions share one sync. Default 64 MiB; at least 1 MiB;
	// negative: no journal.
	JournalBytes int64
	// DiskReserve is how many bytes of the file system are kept free: below it
	// produce fails with ErrDiskFull while reads and deletion go on. Default
	// 64 MiB; negative: none, and the disk may fill up.
	DiskReserve int64
	// MaxInFlightBytes bounds, for each partition, the bytes that are being
	// stored. Default 16 MiB; at least 1 MiB. Less saves memory, too little
	// slows producers down.
	MaxInFlightBytes int64
	// ScrubBytesPerSecond is how fast the node reads through its own files, over
	// and over, to find damage before somebody needs them. Default 4 MiB/s;
	// negative: it does not.
	ScrubBytesPerSecond int64
	// RetentionCheckInterval is how often segments are looked through for those
	// to delete. Default 30 s; at least 10 ms.
	RetentionCheckInterval time.Duration
	// TopicDefaults are settings for topics created from now on that do not say
	// otherwise, by the names of Settings. Topics that exist keep what they
	// have.
	TopicDefaults map[string]string
	// OpenTimeout bounds how long Open waits for other nodes: until the cluster is
	// found, joined or formed, and its metadata can be read. What this node reads of
	// its own directory has no bound. Default 1 minute; negative: no bound.
	OpenTimeout time.Duration
	// CloseTimeout bounds how long Close waits for work under way; what is not
	// done by then is left to the next Open. Default 30 s.
	CloseTimeout time.Duration
	// Cluster says how the node reaches others. Default: it is alone.
	Cluster Cluster
	// Kafka says where the node serves Kafka's protocol. Default: it does not.
	Kafka Kafka
	// Groups are the settings of consumer groups.
	Groups Groups
}

// Defaults and bounds of Config.
const (
	defaultNodeID           = 1
	defaultJournalBytes     = 64 << 20
	minJournalBytes         = 1 << 20
	defaultDiskReserve      = 64 << 20
	defaultMaxInFlightBytes = 16 << 20
	minMaxInFlightBytes     = 1 << 20
	defaultRetentionCheck   = 30 * time.Second
	minRetentionCheck       = 10 * time.Millisecond
	defaultOpenTimeout      = time.Minute
	defaultLogCloseTimeout  = 30 * time.Second
)

// EnsureDefaults fills in what is zero. Open calls it.
func (c *Config) EnsureDefaults() {
	setDefault(&c.NodeID, defaultNodeID)
	setDefault(&c.JournalBytes, defaultJournalBytes)
	setDefault(&c.DiskReserve, defaultDiskReserve)
	setDefault(&c.MaxInFlightBytes, defaultMaxInFlightBytes)
	setDefault(&c.RetentionCheckInterval, defaultRetentionCheck)
	setDefault(&c.OpenTimeout, defaultOpenTimeout)
	setDefault(&c.CloseTimeout, defaultLogCloseTimeout)
	c.TopicDefaults = maps.Clone(c.TopicDefaults)
	c.Cluster.ensureDefaults()
	c.Kafka.clone()
	c.Groups.ensureDefaults()
}

// Validate returns an ErrInvalidConfig that names the first field out of bounds.
// It expects defaults to be filled in.
func (c *Config) Validate() error {
	switch {
	case c.Dir == "":
		return invalidField("Dir", `""`, "the path of a directory")
	case c.NodeID < 1:
		return invalidField("NodeID", c.NodeID, "above 0")
	case c.JournalBytes >= 0 && c.JournalBytes < minJournalBytes:
		return invalidField("JournalBytes", c.JournalBytes, "at least %d, or negative", minJournalBytes)
	case c.MaxInFlightBytes < minMaxInFlightBytes:
		return invalidField("MaxInFlightBytes", c.MaxInFlightBytes, "at least %d", minMaxInFlightBytes)
	case c.RetentionCheckInterval < minRetentionCheck:
		return invalidField("RetentionCheckInterval", c.RetentionCheckInterval, "at least %v", minRetentionCheck)
	case c.CloseTimeout < 0:
		return invalidField("CloseTimeout", c.CloseTimeout, "above 0")
	}
	if err := validateSettings(c.TopicDefaults); err != nil {
		return fmt.Errorf("billet: TopicDefaults: %w", err)
	}
	if err := c.Cluster.validate(c.NodeID); err != nil {
		return err
	}
	if err := c.Groups.validate(); err != nil {
		return err
	}
	return c.Kafka.validate()
}
