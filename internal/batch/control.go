package batch

import (
	"encoding/binary"
	"fmt"
)

// ControlType says what a control record is about.
type ControlType int16

// The control records that end transactions. Values are those on the wire, and
// frozen; others belong to Kafka's metadata log.
const (
	ControlAbort  ControlType = 0
	ControlCommit ControlType = 1
)

// A control record's key is two big endian int16, version 0 and the type. The
// value of those that end a transaction is an int16 version 0 and the int32
// epoch of the transaction coordinator. Readers take higher versions and
// longer values as well.
const (
	controlKeySize   = 4
	controlValueSize = 6
)

// ParseControlKey returns the type in the key of a control record, which may be
// one that has no name here. A key that is too short, or of a negative version,
// is ErrCorrupt.
func ParseControlKey(key []byte) (ControlType, error) {
	if len(key) < controlKeySize {
		return 0, fmt.Errorf("control record key of %d bytes: %w", len(key), ErrCorrupt)
	}
	if v := int16(binary.BigEndian.Uint16(key)); v < 0 {
		return 0, fmt.Errorf("control record key of version %d: %w", v, ErrCorrupt)
	}
	return ControlType(binary.BigEndian.Uint16(key[2:])), nil
}

// ParseControlValue returns the coordinator epoch in the value of a control
// record that ends a transaction. A value that is too short, or of a negative
// version, is ErrCorrupt.
func ParseControlValue(value []byte) (coordinatorEpoch int32, err error) {
	if len(value) < controlValueSize {
		return 0, fmt.Errorf("control record value of %d bytes: %w", len(value), ErrCorrupt)
	}
	if v := int16(binary.BigEndian.Uint16(value)); v < 0 {
		return 0, fmt.Errorf("control record value of version %d: %w", v, ErrCorrupt)
	}
	return int32(binary.BigEndian.Uint32(value[2:])), nil
}

// AppendControl adds a record that ends a transaction, to a builder whose
// options have Control, Transactional, HasProducer and BaseSequence NoProducer
// set. It returns what Append returns.
func (b *Builder) AppendControl(ts int64, t ControlType, coordinatorEpoch int32) (delta int) {
	var key [controlKeySize]byte
	var value [controlValueSize]byte
	binary.BigEndian.PutUint16(key[2:], uint16(t))
	binary.BigEndian.PutUint32(value[2:], uint32(coordinatorEpoch))
	return b.Append(ts, key[:], value[:], nil)
}
