package main

import (
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/billetlog/billet"
)

// collector makes metrics of what the log tells, each time that it is asked.
type collector struct {
	node    *node
	metrics map[string]*prometheus.Desc
	kafka   *kafkaCollector
}

// partitionMetric is a figure of a partition.
type partitionMetric struct {
	name, help string
	value      func(p *billet.PartitionInfo) float64
}

func partitionMetrics() []partitionMetric {
	return []partitionMetric{
		{"partition_start_offset", "The first offset that can be read.", func(p *billet.PartitionInfo) float64 { return float64(p.Start) }},
		{"partition_high_watermark", "The offset up to which records can be read.", func(p *billet.PartitionInfo) float64 { return float64(p.HighWatermark) }},
		{"partition_end_offset", "The offset of the next record.", func(p *billet.PartitionInfo) float64 { return float64(p.End) }},
		{"partition_uncommitted_records", "Records that are stored and not acknowledged yet.", func(p *billet.PartitionInfo) float64 { return float64(max(p.End-p.HighWatermark, 0)) }},
		{"partition_bytes", "Size of the log on this node's disk.", func(p *billet.PartitionInfo) float64 { return float64(p.Bytes) }},
		{"partition_unsynced_seconds", "Age of the oldest acknowledged record that is not durable.", func(p *billet.PartitionInfo) float64 { return p.Unsynced.Seconds() }},
		{"partition_leader", "Id of the node that leads, or -1.", func(p *billet.PartitionInfo) float64 { return float64(p.Leader) }},
		{"partition_leader_epoch", "Grows with every change of the leader.", func(p *billet.PartitionInfo) float64 { return float64(p.LeaderEpoch) }},
		{"partition_replicas", "Copies of the partition.", func(p *billet.PartitionInfo) float64 { return float64(len(p.Replicas)) }},
		{"partition_in_sync_replicas", "Copies that have all they should have.", func(p *billet.PartitionInfo) (n float64) {
			for i := range p.Replicas {
				if p.Replicas[i].InSync {
					n++
				}
			}
			return n
		}},
		{"partition_led", "1 where this node leads.", func(p *billet.PartitionInfo) float64 { return flag01(p.State == billet.StateLeader) }},
		{"partition_available", "1 where some node takes records.", func(p *billet.PartitionInfo) float64 {
			return flag01(p.State == billet.StateLeader || p.State == billet.StateFollower)
		}},
	}
}

// nodeMetric is a figure of the node.
type nodeMetric struct {
	name, help string
	kind       prometheus.ValueType
	value      func(m *billet.Metrics) float64
}

func nodeMetrics() []nodeMetric {
	const gauge, counter = prometheus.GaugeValue, prometheus.CounterValue
	seconds := func(d time.Duration) float64 { return d.Seconds() }
	return []nodeMetric{
		{"uptime_seconds", "Time since the node was opened.", gauge, func(m *billet.Metrics) float64 { return seconds(m.Uptime) }},
		{"groups", "Consumer groups that this node coordinates.", gauge, func(m *billet.Metrics) float64 { return float64(m.Groups.Groups) }},
		{"topics", "Topics of the cluster.", gauge, func(m *billet.Metrics) float64 { return float64(len(m.Topics)) }},
		{"unsynced_seconds", "How much time's records a crash of the machine could lose.", gauge, func(m *billet.Metrics) float64 { return seconds(m.Unsynced) }},
		{"disk_free_bytes", "Free space as last looked at.", gauge, func(m *billet.Metrics) float64 { return float64(m.DiskFree) }},
		{"disk_full", "1 while produce is refused for want of space.", gauge, func(m *billet.Metrics) float64 { return flag01(m.DiskFull) }},
		{"damaged_replicas", "Replicas of this node in which damage was found.", gauge, func(m *billet.Metrics) float64 { return float64(m.DamagedReplicas) }},
		{"cluster_nodes", "Nodes of the cluster.", gauge, func(m *billet.Metrics) float64 { return float64(m.Cluster.Nodes) }},
		{"cluster_reachable_nodes", "Nodes to which a connection stands, this one included.", gauge, func(m *billet.Metrics) float64 { return float64(m.Cluster.Reachable) }},
		{"led_partitions", "Partitions that this node leads.", gauge, func(m *billet.Metrics) float64 { return float64(m.Cluster.Led) }},
		{"under_replicated_partitions", "Of those, the ones with fewer replicas in sync than they have.", gauge, func(m *billet.Metrics) float64 { return float64(m.Cluster.UnderReplicated) }},
		{"offline_partitions", "Partitions that nobody has been known to lead for some seconds.", gauge, func(m *billet.Metrics) float64 { return float64(m.Cluster.Offline) }},
		{"catching_up_replicas", "Replicas of this node that are being copied.", gauge, func(m *billet.Metrics) float64 { return float64(m.Cluster.CatchingUp) }},
		{"catch_up_bytes", "What they have.", gauge, func(m *billet.Metrics) float64 { return float64(m.Cluster.CatchUpBytes) }},
		{"catch_up_total_bytes", "What they are to have.", gauge, func(m *billet.Metrics) float64 { return float64(m.Cluster.CatchUpTotal) }},
		{"cluster_sent_bytes_total", "Bytes that went to other nodes.", counter, func(m *billet.Metrics) float64 { return float64(m.Cluster.BytesSent) }},
		{"cluster_received_bytes_total", "Bytes that came from other nodes.", counter, func(m *billet.Metrics) float64 { return float64(m.Cluster.BytesReceived) }},
		{"syncs_total", "Syncs of the disk.", counter, func(m *billet.Metrics) float64 { return float64(m.Syncs.Count) }},
		{"sync_failures_total", "Those that failed.", counter, func(m *billet.Metrics) float64 { return float64(m.Syncs.Failures) }},
		{"sync_seconds_total", "Time that they took.", counter, func(m *billet.Metrics) float64 { return seconds(m.Syncs.Total) }},
		{"sync_p50_seconds", "Half of them took no longer.", gauge, func(m *billet.Metrics) float64 { return seconds(m.Syncs.P50) }},
		{"sync_p99_seconds", "99 of 100 of them took no longer.", gauge, func(m *billet.Metrics) float64 { return seconds(m.Syncs.P99) }},
		{"sync_max_seconds", "The longest one.", gauge, func(m *billet.Metrics) float64 { return seconds(m.Syncs.Max) }},
		{"journal_bytes_total", "Bytes that went through the journal.", counter, func(m *billet.Metrics) float64 { return float64(m.Journal.Bytes) }},
		{"journal_records_total", "Records that went through the journal.", counter, func(m *billet.Metrics) float64 { return float64(m.Journal.Records) }},
		{"journal_syncs_total", "Syncs of the journal.", counter, func(m *billet.Metrics) float64 { return float64(m.Journal.Syncs) }},
		{"journal_stalls_total", "Writes that waited for room in the journal.", counter, func(m *billet.Metrics) float64 { return float64(m.Journal.Stalls) }},
		{"journal_off", "1 when the journal failed and is off.", gauge, func(m *billet.Metrics) float64 { return flag01(m.Journal.Off != nil) }},
	}
}

// groupMetric is a figure of a consumer group that this node coordinates.
type groupMetric struct {
	name, help string
	value      func(g *billet.GroupMetrics) float64
}

func groupMetrics() []groupMetric {
	return []groupMetric{
		{"group_members", "Members of the group.", func(g *billet.GroupMetrics) float64 { return float64(g.Members) }},
		{"group_lag", "Offsets that the group has left to read.", func(g *billet.GroupMetrics) float64 { return float64(g.Lag) }},
	}
}

// offsetMetric is a figure of a partition that a group reads.
type offsetMetric struct {
	name, help string
	value      func(o *billet.GroupOffset) float64
}

func offsetMetrics() []offsetMetric {
	return []offsetMetric{
		{"group_committed_offset", "The offset that the group reads next, or -1.", func(o *billet.GroupOffset) float64 { return float64(o.Committed) }},
		{"group_partition_lag", "Offsets of the partition that the group has left to read.", func(o *billet.GroupOffset) float64 { return float64(o.Lag) }},
	}
}

func flag01(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

func newCollector(n *node) *collector {
	c := &collector{node: n, metrics: map[string]*prometheus.Desc{}, kafka: newKafkaCollector()}
	for _, m := range nodeMetrics() {
		c.metrics[m.name] = prometheus.NewDesc("billet_"+m.name, m.help, nil, nil)
	}
	for _, m := range partitionMetrics() {
		c.metrics[m.name] = prometheus.NewDesc("billet_"+m.name, m.help, []string{"topic", "partition"}, nil)
	}
	for _, m := range groupMetrics() {
		c.metrics[m.name] = prometheus.NewDesc("billet_"+m.name, m.help, []string{"group"}, nil)
	}
	for _, m := range offsetMetrics() {
		c.metrics[m.name] = prometheus.NewDesc("billet_"+m.name, m.help, []string{"group", "topic", "partition"}, nil)
	}
	return c
}

// Describe names the metrics.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range c.metrics {
		out <- d
	}
	c.kafka.describe(out)
}

// Collect gives their values, none while the log is not open.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	log := c.node.log.Load()
	if log == nil {
		return
	}
	snapshot := log.Metrics()
	for _, m := range nodeMetrics() {
		out <- prometheus.MustNewConstMetric(c.metrics[m.name], m.kind, m.value(&snapshot))
	}
	c.collectGroups(out, snapshot.Groups.List)
	c.kafka.collect(out, &snapshot.Kafka)
	partitions := partitionMetrics()
	for i := range snapshot.Topics {
		t := &snapshot.Topics[i]
		for j := range t.Partitions {
			number := strconv.Itoa(int(t.Partitions[j].Partition))
			for _, m := range partitions {
				out <- prometheus.MustNewConstMetric(c.metrics[m.name], prometheus.GaugeValue, m.value(&t.Partitions[j]), t.Name, number)
			}
		}
	}
}

// collectGroups gives the values of groups. Their names are a client's choice, and those
// that are no text are left out: metrics cannot have them.
func (c *collector) collectGroups(out chan<- prometheus.Metric, groups []billet.GroupMetrics) {
	for i := range groups {
		g := &groups[i]
		if !utf8.ValidString(g.Name) {
			continue
		}
		for _, m := range groupMetrics() {
			out <- prometheus.MustNewConstMetric(c.metrics[m.name], prometheus.GaugeValue, m.value(g), g.Name)
		}
		for j := range g.Offsets {
			o := &g.Offsets[j]
			for _, m := range offsetMetrics() {
				out <- prometheus.MustNewConstMetric(c.metrics[m.name], prometheus.GaugeValue, m.value(o), g.Name, o.Topic, strconv.Itoa(int(o.Partition)))
			}
		}
	}
}
