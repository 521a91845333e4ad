package main

import "time"

const clusterPartitions = 8

// clusterBytesMax bounds what one run writes into each of three nodes.
const clusterBytesMax = 512 << 20

// clusterProduce: records into eight partitions of three replicas on three nodes
// in one process and on one disk, as fast as they are taken.
func clusterProduce(o options) []family {
	durable, interval := clusterFamily(o, "cluster-durable-produce", true), clusterFamily(o, "cluster-interval-produce", false)
	return append(durable, interval...)
}

func clusterFamily(o options, name string, durable bool) []family {
	large, small := clusterLoad(o, name+"-1KiB", durable, kib, "MB/s"), clusterLoad(o, name+"-100B", durable, 100, "records/s")
	line := &large.cases[0]
	line.goals = []goal{peerTimes(2.5)}
	if durable {
		blocks := load{pool: newPool(poolBytes), size: o.batchBytes, feeders: 1, duration: o.duration(2 * time.Second)}
		large.sides = append([]*side{{name: "overwrite", prepare: prepareOverwrite, run: rawWrites(newOverwriter, blocks, true, 1)}}, large.sides...)
		line.limit, line.fields = metric{side: "overwrite", name: "MB/s"}, "limit_is=overwrite+fdatasync,one-writer,of-which-each-node-has-a-third"
		line.goals = []goal{peerTimes(2), limitAtLeast(0.6 / clusterNodes)}
	}
	small.cases[0].goals = []goal{peerTimes(5)}
	return []family{large, small}
}

// clusterSingle: one record after the other into one partition of three replicas.
func clusterSingle(o options) []family {
	l := load{pool: newPool(poolBytes), size: kib, feeders: 1, duration: o.duration(1500 * time.Millisecond)}
	durable := clusterSingleFamily("cluster-sync-produce-durable-1KiB", true, l)
	durable.sides = append([]*side{{name: "overwrite", prepare: prepareOverwrite, run: rawWrites(newOverwriter, l, true, 1)}}, durable.sides...)
	line := &durable.cases[0]
	line.limit, line.fields = metric{side: "overwrite", name: "p50"}, "limit_is=pwrite+fdatasync"
	line.goals = append(line.goals, limitAtMost(2.5))
	return []family{durable, clusterSingleFamily("cluster-sync-produce-interval-1KiB", false, l)}
}

func clusterSingleFamily(name string, durable bool, l load) family {
	s := shape{Partitions: 1, Durable: durable}
	return family{
		name: name,
		sides: []*side{
			singleSide("billet", kindBillet, openBilletCluster, s, l),
			singleSide("jetstream", kindPeer, openJetStreamCluster, s, l),
		},
		cases: []benchCase{{
			name: name + "-p50", unit: "us", lowerBetter: true,
			billet: metric{side: "billet", name: "p50"},
			peers:  []metric{{side: "jetstream", name: "p50"}},
			goals:  []goal{peerTimes(1)},
		}},
	}
}

func clusterLoad(o options, name string, durable bool, size int, unit string) family {
	l := load{pool: newPool(poolBytes), size: size, feeders: clusterNodes, duration: o.duration(3 * time.Second), records: o.records(clusterBytesMax) / int64(size)}
	one, eight := l, l
	one.feeders, eight.feeders = 1, clusterPartitions
	f := family{
		name: name,
		sides: []*side{
			ingestSide("billet", kindBillet, openBilletCluster, shape{Partitions: clusterPartitions, Durable: durable, BatchBytes: o.batchBytes}, l),
			ingestSide("forwarded", kindBillet, openBilletCluster, shape{Partitions: clusterPartitions, Durable: durable, BatchBytes: o.batchBytes, Ingest: ingestForwarded}, one),
			ingestSide("jetstream-1", kindPeer, openJetStreamCluster, shape{Partitions: 1, Durable: durable}, one),
			ingestSide("jetstream-8", kindPeer, openJetStreamCluster, shape{Partitions: clusterPartitions, Durable: durable}, eight),
		},
	}
	if o.quick {
		f.sides = f.sides[:len(f.sides)-1]
	}
	line := benchCase{name: name, unit: unit, billet: metric{side: "billet", name: unit}}
	line.extra = []metric{{side: "forwarded", name: unit}}
	for _, s := range f.sides[2:] {
		line.peers = append(line.peers, metric{side: s.name, name: unit})
	}
	f.cases = []benchCase{line}
	return f
}
