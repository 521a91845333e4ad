// Package kerr has the error codes of Kafka's protocol, under Kafka's names, for the
// packages that answer with them.
package kerr

import "fmt"

// The codes, frozen by the protocol.
const (
	UNKNOWN_SERVER_ERROR                  int16 = -1
	NONE                                  int16 = 0
	OFFSET_OUT_OF_RANGE                   int16 = 1
	CORRUPT_MESSAGE                       int16 = 2
	UNKNOWN_TOPIC_OR_PARTITION            int16 = 3
	INVALID_FETCH_SIZE                    int16 = 4
	LEADER_NOT_AVAILABLE                  int16 = 5
	NOT_LEADER_OR_FOLLOWER                int16 = 6
	REQUEST_TIMED_OUT                     int16 = 7
	BROKER_NOT_AVAILABLE                  int16 = 8
	REPLICA_NOT_AVAILABLE                 int16 = 9
	MESSAGE_TOO_LARGE                     int16 = 10
	STALE_CONTROLLER_EPOCH                int16 = 11
	OFFSET_METADATA_TOO_LARGE             int16 = 12
	NETWORK_EXCEPTION                     int16 = 13
	COORDINATOR_LOAD_IN_PROGRESS          int16 = 14
	COORDINATOR_NOT_AVAILABLE             int16 = 15
	NOT_COORDINATOR                       int16 = 16
	INVALID_TOPIC_EXCEPTION               int16 = 17
	RECORD_LIST_TOO_LARGE                 int16 = 18
	NOT_ENOUGH_REPLICAS                   int16 = 19
	NOT_ENOUGH_REPLICAS_AFTER_APPEND      int16 = 20
	INVALID_REQUIRED_ACKS                 int16 = 21
	ILLEGAL_GENERATION                    int16 = 22
	INCONSISTENT_GROUP_PROTOCOL           int16 = 23
	INVALID_GROUP_ID                      int16 = 24
	UNKNOWN_MEMBER_ID                     int16 = 25
	INVALID_SESSION_TIMEOUT               int16 = 26
	REBALANCE_IN_PROGRESS                 int16 = 27
	INVALID_COMMIT_OFFSET_SIZE            int16 = 28
	TOPIC_AUTHORIZATION_FAILED            int16 = 29
	GROUP_AUTHORIZATION_FAILED            int16 = 30
	CLUSTER_AUTHORIZATION_FAILED          int16 = 31
	INVALID_TIMESTAMP                     int16 = 32
	UNSUPPORTED_SASL_MECHANISM            int16 = 33
	ILLEGAL_SASL_STATE                    int16 = 34
	UNSUPPORTED_VERSION                   int16 = 35
	TOPIC_ALREADY_EXISTS                  int16 = 36
	INVALID_PARTITIONS                    int16 = 37
	INVALID_REPLICATION_FACTOR            int16 = 38
	INVALID_REPLICA_ASSIGNMENT            int16 = 39
	INVALID_CONFIG                        int16 = 40
	NOT_CONTROLLER                        int16 = 41
	INVALID_REQUEST                       int16 = 42
	UNSUPPORTED_FOR_MESSAGE_FORMAT        int16 = 43
	POLICY_VIOLATION                      int16 = 44
	OUT_OF_ORDER_SEQUENCE_NUMBER          int16 = 45
	DUPLICATE_SEQUENCE_NUMBER             int16 = 46
	INVALID_PRODUCER_EPOCH                int16 = 47
	INVALID_TXN_STATE                     int16 = 48
	INVALID_PRODUCER_ID_MAPPING           int16 = 49
	INVALID_TRANSACTION_TIMEOUT           int16 = 50
	CONCURRENT_TRANSACTIONS               int16 = 51
	TRANSACTION_COORDINATOR_FENCED        int16 = 52
	TRANSACTIONAL_ID_AUTHORIZATION_FAILED int16 = 53
	SECURITY_DISABLED                     int16 = 54
	OPERATION_NOT_ATTEMPTED               int16 = 55
	KAFKA_STORAGE_ERROR                   int16 = 56
	LOG_DIR_NOT_FOUND                     int16 = 57
	SASL_AUTHENTICATION_FAILED            int16 = 58
	UNKNOWN_PRODUCER_ID                   int16 = 59
	REASSIGNMENT_IN_PROGRESS              int16 = 60
	NON_EMPTY_GROUP                       int16 = 68
	GROUP_ID_NOT_FOUND                    int16 = 69
	FETCH_SESSION_ID_NOT_FOUND            int16 = 70
	INVALID_FETCH_SESSION_EPOCH           int16 = 71
	LISTENER_NOT_FOUND                    int16 = 72
	TOPIC_DELETION_DISABLED               int16 = 73
	FENCED_LEADER_EPOCH                   int16 = 74
	UNKNOWN_LEADER_EPOCH                  int16 = 75
	UNSUPPORTED_COMPRESSION_TYPE          int16 = 76
	STALE_BROKER_EPOCH                    int16 = 77
	OFFSET_NOT_AVAILABLE                  int16 = 78
	MEMBER_ID_REQUIRED                    int16 = 79
	PREFERRED_LEADER_NOT_AVAILABLE        int16 = 80
	GROUP_MAX_SIZE_REACHED                int16 = 81
	FENCED_INSTANCE_ID                    int16 = 82
	ELIGIBLE_LEADERS_NOT_AVAILABLE        int16 = 83
	ELECTION_NOT_NEEDED                   int16 = 84
	NO_REASSIGNMENT_IN_PROGRESS           int16 = 85
	GROUP_SUBSCRIBED_TO_TOPIC             int16 = 86
	INVALID_RECORD                        int16 = 87
	UNSTABLE_OFFSET_COMMIT                int16 = 88
	THROTTLING_QUOTA_EXCEEDED             int16 = 89
	PRODUCER_FENCED                       int16 = 90
	RESOURCE_NOT_FOUND                    int16 = 91
	DUPLICATE_RESOURCE                    int16 = 92
	UNACCEPTABLE_CREDENTIAL               int16 = 93
	UNKNOWN_TOPIC_ID                      int16 = 100
	INCONSISTENT_TOPIC_ID                 int16 = 103
	FETCH_SESSION_TOPIC_ID_ERROR          int16 = 106
	FENCED_MEMBER_EPOCH                   int16 = 110
	UNRELEASED_INSTANCE_ID                int16 = 111
	UNSUPPORTED_ASSIGNOR                  int16 = 112
	STALE_MEMBER_EPOCH                    int16 = 113
	MISMATCHED_ENDPOINT_TYPE              int16 = 114
	UNSUPPORTED_ENDPOINT_TYPE             int16 = 115
	INVALID_REGULAR_EXPRESSION            int16 = 128
)

// Error is an answer other than success. Its code is what the client gets, and its
// message too where a response has room for one.
type Error struct {
	Code    int16
	Message string
	// Records are those of a batch that are at fault, unless it is the batch as a whole.
	Records []RecordError
}

// RecordError is what is wrong with one record.
type RecordError struct {
	Index   int32 // in its batch
	Message string
}

// Errorf makes an Error.
func Errorf(code int16, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error returns the message with the code.
func (e *Error) Error() string {
	return fmt.Sprintf("%s (Kafka's error code %d)", e.Message, e.Code)
}
