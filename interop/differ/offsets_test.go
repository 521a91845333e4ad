package differ

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func offsetScenarios() []scenario {
	return []scenario{
		{"list-offsets", playListOffsets},
		{"list-offsets-compressed", playListCompressed},
		{"list-offsets-append-time", playListAppendTime},
		{"leader-epochs", playLeaderEpochs},
		{"delete-records", playDeleteRecords},
	}
}

func listOf(topic string, partition int32, time int64) *kmsg.ListOffsetsRequest {
	q := kmsg.NewPtrListOffsetsRequest()
	q.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = topic
	part := kmsg.NewListOffsetsRequestTopicPartition()
	part.Partition, part.Timestamp, part.CurrentLeaderEpoch, part.MaxNumOffsets = partition, time, -1, 1
	t.Partitions = append(t.Partitions, part)
	q.Topics = append(q.Topics, t)
	return q
}

func playListOffsets(p *play) {
	p.topic(p.name(), 2)
	p.put(p.name(), 0, batch{values: []string{"a", "b", "c"}, time: theTime}, batch{values: []string{"d", "e"}, time: theTime + 1000},
		batch{values: []string{"f"}, time: theTime + 500}, batch{values: []string{"g"}, time: theTime + 1001})
	for _, v := range p.versions(kmsg.ListOffsets) {
		for _, time := range []int64{-1, -2, -3, -4, -5, -6, -7, 0, 1, theTime, theTime + 1, theTime + 3, theTime + 1000, theTime + 1001, theTime + 1002, 1 << 50} {
			p.askVersion(fmt.Sprint("time ", time), listOf(p.name(), 0, time), v)
		}
		for _, time := range []int64{-1, -2, -3, 0} {
			p.askVersion(fmt.Sprint("empty, time ", time), listOf(p.name(), 1, time), v)
		}
		p.askVersion("missing partition", listOf(p.name(), 6, -1), v)
		p.askVersion("missing topic", listOf(p.name("missing"), 0, -1), v)
		q := listOf(p.name(), 0, -1)
		q.IsolationLevel = 1
		p.askVersion("committed", q, v)
		q = listOf(p.name(), 0, -1)
		q.Topics[0].Partitions = append(q.Topics[0].Partitions, listOf("", 0, -2).Topics[0].Partitions[0])
		p.askVersion("a partition twice", q, v)
		if v < 4 {
			continue
		}
		for _, ahead := range []int32{0, 1, 1000} {
			q := listOf(p.name(), 0, -2)
			q.Topics[0].Partitions[0].CurrentLeaderEpoch = p.names.leader + ahead
			p.askVersion(fmt.Sprint("epoch ahead by ", ahead), q, v)
		}
	}
}

// playListCompressed looks for times within batches.
func playListCompressed(p *play) {
	p.topic(p.name(), 1)
	for codec := range 5 {
		b := hello(10)
		b.codec, b.time = codec, theTime+int64(codec)*100
		p.put(p.name(), 0, b)
	}
	for _, time := range []int64{0, theTime + 4, theTime + 10, theTime + 107, theTime + 150, theTime + 205, theTime + 303, theTime + 409, theTime + 410, -3} {
		p.ask(fmt.Sprint("time ", time), listOf(p.name(), 0, time))
	}
}

func playListAppendTime(p *play) {
	p.topic(p.name(), 1, "message.timestamp.type", "LogAppendTime")
	p.put(p.name(), 0, hello(3))
	time.Sleep(5 * time.Millisecond) // the times of the two must differ
	p.put(p.name(), 0, hello(2))
	for _, at := range []int64{0, -3, theTime, 1 << 50} {
		p.ask(fmt.Sprint("time ", at), listOf(p.name(), 0, at))
	}
}

func playLeaderEpochs(p *play) {
	p.topic(p.name(), 1)
	p.topic(p.name("empty"), 1)
	p.put(p.name(), 0, hello(5))
	for _, v := range p.versions(kmsg.OffsetForLeaderEpoch) {
		ask := func(label, topic string, partition, epoch, current int32) {
			q := kmsg.NewPtrOffsetForLeaderEpochRequest()
			q.ReplicaID = -1
			t := kmsg.NewOffsetForLeaderEpochRequestTopic()
			t.Topic = topic
			part := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			part.Partition, part.LeaderEpoch, part.CurrentLeaderEpoch = partition, epoch, current
			t.Partitions = append(t.Partitions, part)
			q.Topics = append(q.Topics, t)
			p.askVersion(label, q, v)
		}
		now := p.names.leader
		ask("no epoch", p.name(), 0, -1, -1)
		for _, ahead := range []int32{0, 1, 1000} {
			ask(fmt.Sprint("epoch ahead by ", ahead), p.name(), 0, now+ahead, -1)
			ask(fmt.Sprint("empty, epoch ahead by ", ahead), p.name("empty"), 0, now+ahead, -1)
		}
		ask("current", p.name(), 0, now, now)
		ask("current beyond", p.name(), 0, now, now+7)
		ask("missing partition", p.name(), 3, 0, -1)
		ask("missing topic", p.name("missing"), 0, 0, -1)
	}
}

func playDeleteRecords(p *play) {
	for _, v := range p.versions(kmsg.DeleteRecords) {
		name := p.name(v)
		p.topic(name, 1)
		p.put(name, 0, hello(5), hello(5))
		ask := func(label, topic string, partition int32, offset int64) {
			q := kmsg.NewPtrDeleteRecordsRequest()
			q.TimeoutMillis = 10000
			t := kmsg.NewDeleteRecordsRequestTopic()
			t.Topic = topic
			part := kmsg.NewDeleteRecordsRequestTopicPartition()
			part.Partition, part.Offset = partition, offset
			t.Partitions = append(t.Partitions, part)
			q.Topics = append(q.Topics, t)
			p.askVersion(label, q, v)
		}
		ask("some", name, 0, 3)
		p.ask("start", listOf(name, 0, -2))
		p.fetchVersion("before the start", fetchOf(name, 0, 1), p.newest(kmsg.Fetch, 12))
		p.fetchVersion("at the start", fetchOf(name, 0, 3), p.newest(kmsg.Fetch, 12))
		p.ask("a time before the start", listOf(name, 0, 0))
		ask("back", name, 0, 1)
		ask("beyond", name, 0, 11)
		ask("negative", name, 0, -2)
		ask("missing partition", name, 4, 1)
		ask("missing topic", name+"-missing", 0, 1)
		ask("all", name, 0, -1)
		p.ask("start", listOf(name, 0, -2))
		p.ask("latest time", listOf(name, 0, -3))
		p.fetchVersion("all gone", fetchOf(name, 0, 10), p.newest(kmsg.Fetch, 12))
		p.put(name, 0, hello(1))
		p.fetchVersion("a new one", fetchOf(name, 0, 10), p.newest(kmsg.Fetch, 12))
	}
}
