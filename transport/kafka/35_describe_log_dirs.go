package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeLogDirs, versions 0 to 4, of which 1 to 4 are advertised. It lists the replicas
// of this node with their sizes: those asked for, or all where that is null. Ones that
// the node does not have are left out. No replica is on its way to another directory.
// Needs Describe on the cluster.
func (c *call) describeLogDirs(q *kmsg.DescribeLogDirsRequest) kmsg.Response {
	r := q.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	if !c.allowed(kmsg.ACLOperationDescribe, kmsg.ACLResourceTypeCluster, clusterName) {
		r.ErrorCode, _ = c.code(notForYouCluster())
		return r
	}
	wanted := func(topic string, number int32) bool {
		return q.Topics == nil || slices.ContainsFunc(q.Topics, func(t kmsg.DescribeLogDirsRequestTopic) bool {
			return t.Topic == topic && slices.Contains(t.Partitions, number)
		})
	}
	for _, dir := range c.broker().LogDirs() {
		d := kmsg.NewDescribeLogDirsResponseDir()
		d.Dir, d.TotalBytes, d.UsableBytes = dir.Path, dir.TotalBytes, dir.Free
		for _, replica := range dir.Replicas {
			if !wanted(replica.Topic, replica.Partition) {
				continue
			}
			if n := len(d.Topics); n == 0 || d.Topics[n-1].Topic != replica.Topic {
				t := kmsg.NewDescribeLogDirsResponseDirTopic()
				t.Topic = replica.Topic
				d.Topics = append(d.Topics, t)
			}
			p := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
			p.Partition, p.Size, p.OffsetLag = replica.Partition, replica.Bytes, replica.Lag
			t := &d.Topics[len(d.Topics)-1]
			t.Partitions = append(t.Partitions, p)
		}
		r.Dirs = append(r.Dirs, d)
	}
	return r
}
