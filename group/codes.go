package group

// The error codes of Kafka's protocol that coordinators answer with, named as
// Kafka names them.
const (
	UNKNOWN_SERVER_ERROR        int16 = -1
	NONE                        int16 = 0
	OFFSET_METADATA_TOO_LARGE   int16 = 12
	COORDINATOR_NOT_AVAILABLE   int16 = 15
	NOT_COORDINATOR             int16 = 16
	INVALID_TOPIC_EXCEPTION     int16 = 17
	ILLEGAL_GENERATION          int16 = 22
	INCONSISTENT_GROUP_PROTOCOL int16 = 23
	INVALID_GROUP_ID            int16 = 24
	UNKNOWN_MEMBER_ID           int16 = 25
	INVALID_SESSION_TIMEOUT     int16 = 26
	REBALANCE_IN_PROGRESS       int16 = 27
	UNSUPPORTED_VERSION         int16 = 35
	INVALID_REQUEST             int16 = 42
	NON_EMPTY_GROUP             int16 = 68
	GROUP_ID_NOT_FOUND          int16 = 69
	MEMBER_ID_REQUIRED          int16 = 79
	GROUP_MAX_SIZE_REACHED      int16 = 81
	FENCED_INSTANCE_ID          int16 = 82
	GROUP_SUBSCRIBED_TO_TOPIC   int16 = 86
	UNKNOWN_TOPIC_ID            int16 = 100
	FENCED_MEMBER_EPOCH         int16 = 110
	UNRELEASED_INSTANCE_ID      int16 = 111
	UNSUPPORTED_ASSIGNOR        int16 = 112
	STALE_MEMBER_EPOCH          int16 = 113
	INVALID_REGULAR_EXPRESSION  int16 = 128
)
