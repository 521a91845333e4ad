package kafka

import "strings"

// topicNameMax is Kafka's bound, in bytes.
const topicNameMax = 249

// isTopicName says whether Kafka takes a name for a topic.
func isTopicName(name string) bool {
	if name == "" || len(name) > topicNameMax || name == "." || name == ".." {
		return false
	}
	for i := range len(name) {
		c := name[i]
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("._-", c) >= 0) {
			return false
		}
	}
	return true
}

// isInternalName says whether Kafka has that name for itself.
func isInternalName(name string) bool {
	return name == "__consumer_offsets" || name == "__transaction_state"
}
