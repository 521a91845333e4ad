package billet

import (
	"time"

	"github.com/billetlog/billet/group"
)

// Groups are the settings of consumer groups, which this node coordinates where it leads
// a partition of the topic __consumer_offsets. Nodes of a cluster should have the same.
type Groups struct {
	// OffsetsPartitions is how many partitions __consumer_offsets gets when it is made,
	// which is when the first group is; it never changes after that. Default 16; at most
	// 1,000. More spread many groups over more nodes, and each costs memory.
	OffsetsPartitions int
	// OffsetsRetention is how long offsets are kept that nobody needs: those of a group
	// without members, and of topics that its members do not read any more. Default 7
	// days; at least 1 ms.
	OffsetsRetention time.Duration
	// OffsetsCheckInterval is how often they are looked through for that. Default 10
	// minutes; at least 1 ms.
	OffsetsCheckInterval time.Duration
	// SessionTimeoutMin and SessionTimeoutMax bound which session timeouts members of
	// classic groups may ask for; others are refused. Defaults 6 s and 30 minutes; at
	// least 1 ms. A short one evicts members at each pause of theirs.
	SessionTimeoutMin, SessionTimeoutMax time.Duration
	// InitialRebalanceDelay is how long the first rebalance of an empty classic group
	// waits for more members. Default 3 s; negative: it does not wait.
	InitialRebalanceDelay time.Duration
	// SessionTimeout is after which silence a member of a group of the newer protocol
	// (KIP-848) is removed. Default 45 s; at least 1 ms.
	SessionTimeout time.Duration
	// HeartbeatInterval is how often such members send a heartbeat. A rebalance takes a
	// few of them. Default 5 s; at least 1 ms and below SessionTimeout.
	HeartbeatInterval time.Duration
	// MembersMax bounds the members of a group: further ones are refused. Default 5,000.
	MembersMax int
	// GroupsMax bounds the groups of one partition of __consumer_offsets. Default
	// 100,000.
	GroupsMax int
}

// Defaults and bounds of Groups.
const (
	defaultOffsetsPartitions    = 16
	maxOffsetsPartitions        = 1_000
	defaultOffsetsRetention     = 7 * 24 * time.Hour
	defaultOffsetsCheckInterval = 10 * time.Minute
	defaultSessionTimeoutMin    = 6 * time.Second
	defaultSessionTimeoutMax    = 30 * time.Minute
	defaultRebalanceDelay       = 3 * time.Second
	defaultGroupSessionTimeout  = 45 * time.Second
	defaultHeartbeatInterval    = 5 * time.Second
	defaultMembersMax           = 5_000
	defaultGroupsMax            = 100_000
	minGroupDuration            = time.Millisecond
)

func (g *Groups) ensureDefaults() {
	setDefault(&g.OffsetsPartitions, defaultOffsetsPartitions)
	setDefault(&g.OffsetsRetention, defaultOffsetsRetention)
	setDefault(&g.OffsetsCheckInterval, defaultOffsetsCheckInterval)
	setDefault(&g.SessionTimeoutMin, defaultSessionTimeoutMin)
	setDefault(&g.SessionTimeoutMax, defaultSessionTimeoutMax)
	setDefault(&g.InitialRebalanceDelay, defaultRebalanceDelay)
	setDefault(&g.SessionTimeout, defaultGroupSessionTimeout)
	setDefault(&g.HeartbeatInterval, defaultHeartbeatInterval)
	setDefault(&g.MembersMax, defaultMembersMax)
	setDefault(&g.GroupsMax, defaultGroupsMax)
}

func (g *Groups) validate() error {
	for _, f := range []struct {
		name  string
		value time.Duration
	}{
		{"OffsetsRetention", g.OffsetsRetention}, {"OffsetsCheckInterval", g.OffsetsCheckInterval},
		{"SessionTimeoutMin", g.SessionTimeoutMin}, {"SessionTimeoutMax", g.SessionTimeoutMax},
		{"SessionTimeout", g.SessionTimeout}, {"HeartbeatInterval", g.HeartbeatInterval},
	} {
		if f.value < minGroupDuration {
			return invalidField("Groups."+f.name, f.value, "at least %v", minGroupDuration)
		}
	}
	switch {
	case g.OffsetsPartitions < 1 || g.OffsetsPartitions > maxOffsetsPartitions:
		return invalidField("Groups.OffsetsPartitions", g.OffsetsPartitions, "1 to %d", maxOffsetsPartitions)
	case g.SessionTimeoutMax < g.SessionTimeoutMin:
		return invalidField("Groups.SessionTimeoutMax", g.SessionTimeoutMax, "at least SessionTimeoutMin, %v", g.SessionTimeoutMin)
	case g.HeartbeatInterval >= g.SessionTimeout:
		return invalidField("Groups.HeartbeatInterval", g.HeartbeatInterval, "below SessionTimeout, %v", g.SessionTimeout)
	case g.MembersMax < 1:
		return invalidField("Groups.MembersMax", g.MembersMax, "above 0")
	case g.GroupsMax < 1:
		return invalidField("Groups.GroupsMax", g.GroupsMax, "above 0")
	}
	return nil
}

// options are the settings as the coordinators take them.
func (g *Groups) options() group.Options {
	return group.Options{
		SessionTimeoutMin: g.SessionTimeoutMin, SessionTimeoutMax: g.SessionTimeoutMax, InitialRebalanceDelay: g.InitialRebalanceDelay,
		ConsumerSessionTimeout: g.SessionTimeout, ConsumerHeartbeatInterval: g.HeartbeatInterval,
		OffsetsRetention: g.OffsetsRetention, OffsetsCheckInterval: g.OffsetsCheckInterval,
		MembersMax: g.MembersMax, GroupsMax: g.GroupsMax,
	}
}
