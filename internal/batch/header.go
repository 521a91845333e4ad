package batch

import "hash/crc32"

// The header of a record batch. All integers are big endian and signed unless
// said otherwise.
//
//	 0          8      12     16 17     21    23     27         35
//	+----------+------+------+--+------+-----+------+----------+----------+
//	| base     |length|leader|mg| CRC  |attr.|last  | base     | max      |
//	| offset   |      |epoch |  |      |     |delta | timestamp| timestamp|
//	+----------+------+------+--+------+-----+------+----------+----------+
//	43         51    53     57     61
//	+----------+-----+------+------+----------------------------- - -
//	| producer |prod.|base  |record| records, as one compressed blob
//	| id       |epoch|seq.  |count | if the codec is not none
//	+----------+-----+------+------+----------------------------- - -
//
// length counts the bytes after itself, so a batch takes length + 12 bytes.
// CRC is an unsigned CRC-32C over everything from attributes to the end.
// Timestamps are milliseconds since the Unix epoch.
//
// A record, where varint and varlong are zig-zag coded base-128 integers of at
// most 5 and 10 bytes:
//
//	length        varint   bytes after this field
//	attributes    int8     0, unused
//	timestamp     varlong  minus base timestamp
//	offset        varint   minus base offset
//	key           varint length, -1 for null, then bytes
//	value         varint length, -1 for null, then bytes
//	headers       varint count, then for each
//	  key         varint length, then bytes
//	  value       varint length, -1 for null, then bytes
//
// The constants below are the wire format and frozen.
const (
	// HeaderSize is the number of bytes before the first record.
	HeaderSize = 61
	// PrefixSize is the number of bytes up to and including the length field:
	// what must be there to know a batch's size. It is also what the length
	// field does not count.
	PrefixSize = 12
	// Magic is the only message format this package knows.
	Magic = 2

	// Positions of the header's fields.
	BaseOffsetOffset      = 0
	LengthOffset          = 8
	LeaderEpochOffset     = 12
	MagicOffset           = 16
	CRCOffset             = 17
	AttributesOffset      = 21
	LastOffsetDeltaOffset = 23
	BaseTimestampOffset   = 27
	MaxTimestampOffset    = 35
	ProducerIDOffset      = 43
	ProducerEpochOffset   = 51
	BaseSequenceOffset    = 53
	CountOffset           = 57
)

// Bits of the attributes field; frozen.
const (
	attrCodecMask     = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
	attrKnown         = 0x7f
)

const (
	// NoProducer is the ProducerID, ProducerEpoch and BaseSequence of a batch
	// from a producer that is neither idempotent nor transactional.
	NoProducer = -1
	// NoLeaderEpoch is the LeaderEpoch of a batch that no leader has stamped.
	NoLeaderEpoch = -1
	// NoTimestamp stands for an absent timestamp.
	NoTimestamp = -1

	// minRecordSize is the size of the smallest record: seven fields of one
	// byte each.
	minRecordSize = 7
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
