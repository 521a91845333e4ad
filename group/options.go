package group

import (
	"fmt"
	"time"
)

// Options are the settings of a core. The zero value of a field means its default.
type Options struct {
	// NewID returns a string that was never returned before on any node, such as a
	// random UUID. It must be set: a core has no source of randomness.
	NewID func() string

	// SessionTimeoutMin and SessionTimeoutMax bound what members of classic groups
	// may ask for: 6 s and 30 min. Too low evicts members at each pause.
	SessionTimeoutMin, SessionTimeoutMax time.Duration
	// InitialRebalanceDelay is how long the first rebalance of an empty classic
	// group waits for more members: 3 s; negative for no wait at all.
	InitialRebalanceDelay time.Duration
	// NewMemberJoinTimeout is how long a new member may wait for its first
	// rebalance to end: 5 min. It frees what clients leave that went away meanwhile.
	NewMemberJoinTimeout time.Duration

	// ConsumerSessionTimeout is after which silence a member of a consumer group
	// is removed: 45 s.
	ConsumerSessionTimeout time.Duration
	// ConsumerHeartbeatInterval is what members of consumer groups are told: 5 s.
	// A rebalance takes a few of them.
	ConsumerHeartbeatInterval time.Duration
	// Assignor is that of consumer groups whose members prefer none: "uniform" or
	// "range"; uniform by default.
	Assignor string

	// OffsetsRetention is how long offsets live that nobody needs: 7 days.
	OffsetsRetention time.Duration
	// OffsetsCheckInterval is how often offsets are looked through: 10 min.
	OffsetsCheckInterval time.Duration
	// OffsetMetadataBytesMax bounds the text that goes with an offset: 4096.
	OffsetMetadataBytesMax int

	// GroupsMax bounds the groups of one core: 100,000.
	GroupsMax int
	// MembersMax bounds the members of a group, pending ones included: 5,000.
	MembersMax int
	// MemberBytesMax bounds what a member says about itself, such as its metadata
	// or its subscription: 256 KiB.
	MemberBytesMax int
	// RecordBytesMax bounds one record: 768 KiB. The assignment of a classic group that
	// does not fit is refused; a member of a consumer group gets no more partitions
	// than a quarter of it holds, 40,000 or so, and what is left over goes to nobody.
	RecordBytesMax int
	// WriteBytesMax bounds the records of a write: 960 KiB, so that its batch is below
	// the 1 MiB that a partition takes. It must not be below RecordBytesMax by much: a
	// larger record is a write of its own.
	WriteBytesMax int
}

// EnsureDefaults fills in what is zero.
func (o *Options) EnsureDefaults() {
	set(&o.SessionTimeoutMin, 6*time.Second)
	set(&o.SessionTimeoutMax, 30*time.Minute)
	set(&o.InitialRebalanceDelay, 3*time.Second)
	set(&o.NewMemberJoinTimeout, 5*time.Minute)
	set(&o.ConsumerSessionTimeout, 45*time.Second)
	set(&o.ConsumerHeartbeatInterval, 5*time.Second)
	set(&o.Assignor, AssignorUniform)
	set(&o.OffsetsRetention, 7*24*time.Hour)
	set(&o.OffsetsCheckInterval, 10*time.Minute)
	set(&o.OffsetMetadataBytesMax, 4096)
	set(&o.GroupsMax, 100_000)
	set(&o.MembersMax, 5_000)
	set(&o.MemberBytesMax, 256<<10)
	set(&o.RecordBytesMax, 768<<10)
	set(&o.WriteBytesMax, 960<<10)
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate tells what is wrong with options whose defaults are filled in.
func (o *Options) Validate() error {
	if o.NewID == nil {
		return fmt.Errorf("group: Options.NewID is nil: give a function that returns random identifiers")
	}
	for name, d := range map[string]time.Duration{
		"SessionTimeoutMin": o.SessionTimeoutMin, "NewMemberJoinTimeout": o.NewMemberJoinTimeout,
		"ConsumerSessionTimeout": o.ConsumerSessionTimeout, "ConsumerHeartbeatInterval": o.ConsumerHeartbeatInterval,
		"OffsetsRetention": o.OffsetsRetention, "OffsetsCheckInterval": o.OffsetsCheckInterval,
	} {
		if d < time.Millisecond {
			return fmt.Errorf("group: Options.%s is %v: it must be at least 1ms", name, d)
		}
	}
	for name, n := range map[string]int{
		"OffsetMetadataBytesMax": o.OffsetMetadataBytesMax, "GroupsMax": o.GroupsMax, "MembersMax": o.MembersMax,
		"MemberBytesMax": o.MemberBytesMax, "RecordBytesMax": o.RecordBytesMax, "WriteBytesMax": o.WriteBytesMax,
	} {
		if n < 1 {
			return fmt.Errorf("group: Options.%s is %d: it must be at least 1", name, n)
		}
	}
	if o.MemberBytesMax > o.RecordBytesMax {
		return fmt.Errorf("group: Options.MemberBytesMax, %d, is above RecordBytesMax, %d", o.MemberBytesMax, o.RecordBytesMax)
	}
	if o.OffsetMetadataBytesMax > 1<<15-1 {
		return fmt.Errorf("group: Options.OffsetMetadataBytesMax is %d: records hold at most %d", o.OffsetMetadataBytesMax, 1<<15-1)
	}
	if o.SessionTimeoutMax < o.SessionTimeoutMin {
		return fmt.Errorf("group: Options.SessionTimeoutMax, %v, is below SessionTimeoutMin, %v", o.SessionTimeoutMax, o.SessionTimeoutMin)
	}
	if o.ConsumerHeartbeatInterval >= o.ConsumerSessionTimeout {
		return fmt.Errorf("group: Options.ConsumerHeartbeatInterval, %v, must be below ConsumerSessionTimeout, %v", o.ConsumerHeartbeatInterval, o.ConsumerSessionTimeout)
	}
	if !isAssignor(o.Assignor) {
		return fmt.Errorf("group: Options.Assignor is %q: use %q or %q", o.Assignor, AssignorUniform, AssignorRange)
	}
	return nil
}
