package billet

import "time"

// Metrics is a snapshot of a Log. Counters count since Open.
type Metrics struct {
	// Uptime is the time since Open.
	Uptime time.Duration
	// Topics has one entry for each topic, sorted by name.
	Topics []TopicMetrics
	// Journal tells of the journal; its zero value when there is none.
	Journal JournalMetrics
	// Syncs tells of the node's fdatasyncs.
	Syncs SyncMetrics
	// Unsynced is the greatest of the partitions' PartitionInfo.Unsynced: how
	// much time's records a crash of the machine could lose, all of them in
	// topics with fsync=interval.
	Unsynced time.Duration
	// DiskFree is the free space as last looked at, in bytes.
	DiskFree int64
	// DiskFull tells whether produce is refused for want of space.
	DiskFull bool
	// Cluster tells of other nodes and of replicas.
	Cluster ClusterMetrics
	// Groups tells of the consumer groups that this node coordinates.
	Groups GroupsMetrics
	// Kafka tells of Kafka clients.
	Kafka KafkaMetrics
	// DamagedReplicas is in how many replicas of this node damage was found.
	DamagedReplicas int64
	// Producers and Consumers are how many are open.
	Producers, Consumers int
	// BufferedBytes is the memory of records that open Producers hold.
	BufferedBytes int64
}

// TopicMetrics is a snapshot of one topic.
type TopicMetrics struct {
	Name       string
	Partitions []PartitionInfo
}

// ClusterMetrics is what this node knows of the cluster.
type ClusterMetrics struct {
	// Nodes is how many there are, this one included; Reachable to how many of
	// them a connection stands.
	Nodes, Reachable int
	// Led is how many partitions this node leads. Of those, UnderReplicated have
	// fewer replicas in sync than they have replicas.
	Led, UnderReplicated int
	// Offline is how many partitions nobody has been known to lead for some
	// seconds.
	Offline int
	// CatchingUp is how many replicas of this node are being copied from other
	// nodes; they have CatchUpBytes of CatchUpTotal.
	CatchingUp                 int
	CatchUpBytes, CatchUpTotal int64
	// BytesSent and BytesReceived went to and came from other nodes.
	BytesSent, BytesReceived uint64
}

// count adds a partition.
func (m *ClusterMetrics) count(p *PartitionInfo) {
	switch p.State {
	case StateOffline:
		m.Offline++
	case StateLeader:
		m.Led++
		for _, r := range p.Replicas {
			if !r.InSync {
				m.UnderReplicated++
				break
			}
		}
	}
}

// SyncMetrics sums up the fdatasyncs of partitions and journal. Under fsync=commit
// a record waits for about one of them, so their times are those of produce.
type SyncMetrics struct {
	// Count is how many there were, Failures how many of them failed.
	Count, Failures int64
	// Total is the time that all took. Several can run at once, so it may exceed
	// the time that has passed.
	Total time.Duration
	// P50 and P99 are bounds that 50 % and 99 % of them stayed within, rounded up
	// to a power of two of microseconds. Max is the longest one.
	P50, P99, Max time.Duration
}

// JournalMetrics is a snapshot of the journal.
type JournalMetrics struct {
	// Groups are durable writes, Records what was in them, Bytes their size.
	Groups, Records, Bytes uint64
	// Syncs are those of the journal file.
	Syncs uint64
	// Checkpoints are the times when half of it was given free again.
	Checkpoints uint64
	// Stalls are the times when a write waited for a checkpoint, StallTime how
	// long in all.
	Stalls    uint64
	StallTime time.Duration
	// Off is why the journal is off; nil while it works.
	Off error
}

// Metrics returns a snapshot. It is cheap enough for once a second: some
// microseconds for each partition.
func (l *Log) Metrics() Metrics {
	m := Metrics{Uptime: time.Since(l.started)}
	for _, state := range l.catalog.Topics() {
		t := TopicMetrics{Name: state.Name, Partitions: make([]PartitionInfo, state.Partitions)}
		for n := range t.Partitions {
			t.Partitions[n] = l.describePartition(state.Name, int32(n))
			m.Unsynced = max(m.Unsynced, t.Partitions[n].Unsynced)
			m.Cluster.count(&t.Partitions[n])
		}
		m.Topics = append(m.Topics, t)
	}
	l.mu.Lock()
	m.Producers, m.Consumers = len(l.mu.producers), len(l.mu.consumers)
	for p := range l.mu.producers {
		m.BufferedBytes += p.Buffered()
	}
	l.mu.Unlock()
	l.node.metrics(&m)
	if n, ok := l.node.(*machineNode); ok {
		m.Groups = l.groupsMetrics(n.broker)
	}
	return m
}

// metrics fills in what the host knows.
func (n *machineNode) metrics(m *Metrics) {
	if s, ok := n.Host.JournalStats(); ok {
		m.Journal = JournalMetrics{Groups: s.Groups, Records: s.Records, Bytes: s.Bytes, Syncs: s.Syncs,
			Checkpoints: s.Checkpoints, Stalls: s.Stalls, StallTime: s.Stall, Off: wrapSeam(s.Off)}
	}
	m.Syncs = SyncMetrics(n.Host.SyncStats())
	m.DamagedReplicas = n.Host.DamagedReplicas()
	m.DiskFree, m.DiskFull = n.Host.DiskFree()
	for _, node := range n.Nodes() {
		m.Cluster.Nodes++
		if n.Reachable(node.ID) {
			m.Cluster.Reachable++
		}
	}
	for _, p := range n.Host.Partitions() {
		if c, ok := p.CatchUp(); ok {
			m.Cluster.CatchingUp++
			m.Cluster.CatchUpBytes += c.Bytes
			m.Cluster.CatchUpTotal += c.Total
		}
	}
	m.Cluster.BytesSent, m.Cluster.BytesReceived = n.Traffic()
	if n.kafka != nil {
		m.Kafka = newKafkaMetrics(n.kafka)
	}
}
