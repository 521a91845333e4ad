package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Token names a request. The caller chooses it; the core only gives it back, once.
type Token uint64

// Seq numbers writes, from 1, in the order in which they must be appended.
type Seq uint64

// Request is what a client asked, and who the client is.
type Request struct {
	// Token comes back with the response.
	Token Token
	// ClientID is what the client calls itself; ClientHost is where it connects from.
	ClientID, ClientHost string
	// Body is the request. The core keeps what it points at until it is answered.
	Body kmsg.Request
}

// Record is one record of `__consumer_offsets`. A nil Value is a tombstone.
type Record struct {
	Key, Value []byte
}

// Write is a batch of records of one group, of at most Options.WriteBytesMax bytes. It
// must be appended whole or not at all, after all writes with a lower Seq, with Time as
// the timestamp of its records.
type Write struct {
	Seq     Seq
	Time    time.Time
	Records []Record
}

// Response answers the request with that token, and may be sent.
type Response struct {
	Token Token
	Body  kmsg.Response
}

// Effects is what the caller has to do after a call.
type Effects struct {
	// Writes are to be appended, in this order.
	Writes []Write
	// Responses may be sent at once: what they tell is committed.
	Responses []Response
	// Wake is when Tick must be called next; zero when there is no need.
	Wake time.Time
}

// answer is a response of the present call, before it is known what it waits for.
type answer struct {
	group *group // nil: it tells of all groups
	to    *Request
	body  kmsg.Response
}

// held is a response that waits for a write.
type held struct {
	to   *Request
	body kmsg.Response
}
