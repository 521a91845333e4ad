package replication

import (
	"context"
	"errors"
	"fmt"

	"github.com/billetlog/billet/segment"
)

// errorCodes give each error to branch on a number, so that errors.Is works for an answer that comes from another node. The numbers are frozen: they
// are on the wire. The first that fits counts.
var errorCodes = []struct {
	code uint16
	err  error
}{
	{26, ErrInvalidAssignment},            // with the error that says why
	{22, ErrNotEnoughReplicasAfterAppend}, // an ErrAmbiguous too
	{1, ErrAmbiguous},
	{2, ErrNotLeader},
	{3, ErrBusy},
	{4, ErrOutOfOrderSequence},
	{5, ErrProducerFenced},
	{6, ErrInvalidTimestamp},
	{7, ErrInvalidBatch},
	{8, ErrTooLarge},
	{9, ErrDiskFull},
	{10, ErrQuarantined},
	{11, ErrFailed},
	{12, ErrClosed},
	{13, ErrUnknownTopic},
	{14, ErrTopicExists},
	{15, ErrInvalidPartitions},
	{16, ErrInvalidConfig},
	{17, ErrForeignDir},
	{18, ErrNotEnoughNodes},
	{19, ErrNodeExists},
	{20, ErrUnknownNode},
	{21, ErrNotEnoughReplicas},
	{23, ErrMembership},
	{24, ErrMajority},
	{25, ErrInvalidTopic},
	{28, ErrNoReassignment},
	{27, ErrOffsetOutOfRange},
	{30, segment.ErrCompacted},
	{31, segment.ErrUnavailable},
	{32, segment.ErrCorrupt},
	{40, context.DeadlineExceeded},
	{41, context.Canceled},
}

// codeOf is the number of the sentinel that err wraps, 0 when there is none.
func codeOf(err error) uint16 {
	for _, c := range errorCodes {
		if errors.Is(err, c.err) {
			return c.code
		}
	}
	return 0
}

// remoteError is an error that another node answered with: its words, and the sentinel that its code stands for.
type remoteError struct {
	node int32
	text string
	err  error // nil for a code that this program does not know
}

func (e *remoteError) Error() string { return fmt.Sprintf("node %d: %s", e.node, e.text) }

// Unwrap returns the sentinel.
func (e *remoteError) Unwrap() error { return e.err }

// errorOf makes an error of what another node answered.
func errorOf(node int32, code uint16, text string) error {
	e := &remoteError{node: node, text: text}
	for _, c := range errorCodes {
		if c.code == code {
			e.err = c.err
		}
	}
	return e
}
