package kafka

import (
	"reflect"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// api is what the server does about one kind of request.
type api struct {
	key kmsg.Key
	// Versions min to max are served and, unless advertisedMin says otherwise,
	// advertised.
	min, max int16
	// advertisedMin is the lowest version that clients are told, when that is another one.
	// Below min: there are clients that take it for something else. Above: nobody
	// needs the older ones, and Kafka has them no more.
	advertisedMin int16
	// early says that it is taken before the client has proved who it is.
	early bool
	// handle answers. It may return before the answer is ready.
	handle func(c *call, request kmsg.Request, a *answer)
	stats  *apiStats
}

// apis is the table of all requests that are served, by key.
func apis() []api {
	return slices.Concat(dataAPIs(), groupAPIs(), adminAPIs(), sessionAPIs())
}

// dataAPIs produce and read.
func dataAPIs() []api {
	return []api{
		{key: kmsg.Produce, min: produceMin, max: produceMax, handle: (*call).produce},
		{key: kmsg.Fetch, min: fetchMin, max: fetchMax, advertisedMin: fetchMin, handle: (*call).fetch},
		serve(kmsg.ListOffsets, 0, 8, (*call).listOffsets),
		serve(kmsg.Metadata, 0, 12, (*call).metadata),
		serve(kmsg.DeleteRecords, 0, 2, (*call).deleteRecords),
		serve(kmsg.InitProducerID, 0, 5, (*call).initProducerID),
		serve(kmsg.OffsetForLeaderEpoch, 2, 4, (*call).offsetForLeaderEpoch),
	}
}

// adminAPIs change and describe the cluster.
func adminAPIs() []api {
	return []api{
		serve(kmsg.CreateTopics, 0, 7, (*call).createTopics).advertised(2),
		serve(kmsg.DeleteTopics, 0, 6, (*call).deleteTopics).advertised(1),
		serve(kmsg.DescribeConfigs, 0, 4, (*call).describeConfigs).advertised(1),
		serve(kmsg.AlterConfigs, 0, 2, (*call).alterConfigs),
		serve(kmsg.CreatePartitions, 0, 3, (*call).createPartitions),
		serve(kmsg.IncrementalAlterConfigs, 0, 1, (*call).incrementalAlterConfigs),
		serve(kmsg.DescribeLogDirs, 0, 4, (*call).describeLogDirs).advertised(1),
		serve(kmsg.ElectLeaders, 0, 2, (*call).electLeaders),
		serve(kmsg.AlterPartitionAssignments, 0, 1, (*call).alterPartitionReassignments),
		serve(kmsg.ListPartitionReassignments, 0, 0, (*call).listPartitionReassignments),
		serve(kmsg.DescribeCluster, 0, 2, (*call).describeCluster),
	}
}

// sessionAPIs are about the connection itself.
func sessionAPIs() []api {
	return []api{
		serve(kmsg.SASLHandshake, 0, 1, (*call).saslHandshake).beforeAuth(),
		serve(kmsg.ApiVersions, 0, 4, (*call).apiVersions).beforeAuth(),
		serve(kmsg.DescribeACLs, 0, 3, (*call).describeACLs),
		serve(kmsg.CreateACLs, 0, 3, (*call).createACLs),
		serve(kmsg.DeleteACLs, 0, 3, (*call).deleteACLs),
		serve(kmsg.SASLAuthenticate, 0, 2, (*call).saslAuthenticate).beforeAuth(),
		serve(kmsg.DescribeClientQuotas, 0, 1, (*call).describeClientQuotas),
		serve(kmsg.DescribeUserSCRAMCredentials, 0, 0, (*call).describeUserScramCredentials),
		serve(kmsg.AlterUserSCRAMCredentials, 0, 0, (*call).alterUserScramCredentials),
	}
}

// serve makes an entry for a request that is answered by one call.
func serve[Q kmsg.Request](key kmsg.Key, min, max int16, f func(*call, Q) kmsg.Response) api {
	return api{key: key, min: min, max: max, advertisedMin: min,
		handle: func(c *call, request kmsg.Request, a *answer) { a.give(f(c, request.(Q))) }}
}

// beforeAuth makes the request one that is taken from clients nobody knows yet.
func (a api) beforeAuth() api {
	a.early = true
	return a
}

// advertised sets the lowest version that clients are told.
func (a api) advertised(min int16) api {
	a.advertisedMin = min
	return a
}

// apiTable finds entries by key.
type apiTable map[int16]*api

func newAPITable() apiTable {
	t := apiTable{}
	list := apis()
	for i := range list {
		a := &list[i]
		a.stats = &apiStats{plan: planCodes(reflect.TypeOf(a.key.Response()).Elem())}
		t[a.key.Int16()] = a
	}
	return t
}
