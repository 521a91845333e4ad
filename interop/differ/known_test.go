package differ

// exemption is a difference that is wanted or does not matter. All three are regular
// expressions: the scenario's name whole, parts of the step's label and of the line.
type exemption struct {
	scenario, step, line string
	reason               string
}

// known are all exemptions.
func known() []exemption {
	var all []exemption
	for _, part := range [][]exemption{knownEverywhere(), knownTopics(), knownData(), knownGroups()} {
		all = append(all, part...)
	}
	return all
}

func knownEverywhere() []exemption {
	const message = "a message says more, or is null instead of empty: clients show it at most"
	return []exemption{
		{"api-versions.*", "", `^(ApiKeys|SupportedFeatures|FinalizedFeatures)`,
			"what is served differs: transactions, share groups and streams are not, nor is what only brokers and tokens need"},
		{".*", "", `(^|\.)ErrorMessage=`, message},
		{"acls", "unknown", "", "a filter for what is unknown is answered like any other, instead of a closed connection"},
		{"log-dirs", "", `\.Size=`, "an empty partition has a file with a header"},
		{"reassignments", "cancel", "", "there is nothing to take back, which is the outcome that was asked for"},
	}
}

func knownTopics() []exemption {
	const compaction = "there is no log compaction: cleanup.policy=compact is refused"
	return []exemption{
		{"create", "no time", "", "a topic is made before the answer, whatever time the client gives"},
		{"create", "only validate", `\.TopicID=`, "a topic that is not made has no id"},
		{"create-bad", "internal name", `ErrorCode=`, "the topic is there already, under its name"},
		{"create-collision", "both", "", "Kafka overlooks a collision of names within one request"},
		{"create-configs", "compact", "", compaction},
		{"create-configs", "flush.messages", "", "billet.fsync says when a log is synced; flush.messages is refused rather than ignored"},
		{"produce-compacted", "", "", compaction},
		{"configs-incremental", "^(add|add again|subtract|subtract what is not there) ", "", compaction},
		{"configs-incremental", "^settings", `^cleanup.policy`, compaction},
		{"configs-incremental", "unknown operation", `ErrorCode=`, "the request is at fault: INVALID_REQUEST says more than UNKNOWN_SERVER_ERROR"},
		{"configs-incremental", "no topic", `ErrorCode=`, "there is no topic with an empty name"},
		{"configs-describe", "bad name|no name", `ErrorCode=`, "there is no topic of a name that none can have"},
		{"configs-describe", "any broker", `Configs=`, "an empty list is null, which clients take alike"},
		{"configs-describe", "synonyms", `ConfigSynonyms`, "where a default comes from is told too"},
		{"metadata-ids", "", `^(Brokers|ClusterID|ControllerID)`, "an answer about topics that cannot be had names the nodes all the same"},
		{"metadata-ids", "neither", "", "a topic without name and id is refused by itself"},
	}
}

func knownData() []exemption {
	const marked = "a batch that claims to have been stamped by a broker is refused, as Kafka's own rules say"
	return []exemption{
		{"session-gone", "", `AbortedTransactions=`, "an empty list is null, which clients take alike"},
		{"producer-window", "again [012] ", "", "more than five batches of a producer are remembered"},
		{"producer-.*", "again|duplicate", `LogAppendTime=`, "the time of append is told where the topic has one"},
		{"produce-timestamps", "all of it", "times -1000", "times before 1970 are kept as the producer wrote them"},
		{"produce-bad", "^null ", "", "Kafka throws away such a request without an answer"},
		{"produce-bad", "^append time ", "", marked},
		{"produce-bad", "^(unknown codec|not compressed) ", "", "a batch that cannot be read is refused by its reason instead of UNKNOWN_SERVER_ERROR"},
		{"produce-bad", "", `BaseOffset=\d`, "offsets after batches that were refused here"},
		{"produce-bad", "all of it", "", "batches that were refused here"},
		{"list-offsets", "^empty, time -2 ", `LeaderEpoch=`, "an empty partition has no record whose epoch could be told"},
		{"delete-records", "^start ", `LeaderEpoch=`, "an empty partition has no record whose epoch could be told"},
		{"delete-records", "^latest time ", "", "Kafka names a record that was deleted"},
	}
}

func knownGroups() []exemption {
	const names = "a group has a name: Kafka takes the empty one in old requests"
	return []exemption{
		{"offset-fetch|commit-simple", "no group", "", names},
		{"classic-bad", "(empty|bad|long) instance", "", "an instance id has the form of a name: Kafka checks it in clients only"},
		{"consumer-classic", "unknown protocol|an empty consumer group", "", "members of the classic protocol do not enter a consumer group that has members"},
		{"consumer-classic", "described DescribeGroups", "", "an empty group keeps the type of its protocol, and is there: Kafka forgets it at times"},
		{"consumer-static", "described", `State=`, "a member that is away for a while holds nothing back"},
		{"consumer-.*", "empty ConsumerGroupDescribe", `AssignmentEpoch=`, "nothing is assigned in a group without members"},
		{"consumer-two", "^afterwards ", "", "what a member no longer wants is taken from it at once, not with its next heartbeat"},
		{"consumer-regex", "^good ", `^Assignment`, "an expression is looked up while the member joins, not after it"},
	}
}
