package replication

// TopicSpec is a topic to be made.
type TopicSpec struct {
	Name       string
	Partitions int // with Assignments 0, or their number
	Replicas   int // replication factor; 0: three, or as many as there are active nodes when they are fewer, or that of Assignments
	Config     map[string]string
	// Internal says that the topic is of the library itself: users cannot change it, retention and the disk brake leave it alone, and it gets more
	// replicas as nodes join.
	Internal bool
	// Assignments are the nodes of each partition, the preferred leader first, as many for each. Nil: they are chosen.
	Assignments [][]int32
	// ValidateOnly says that everything is checked and nothing is made. The answer tells where the replicas would be.
	ValidateOnly bool
}

// TopicState is a topic as the metadata has it. It is not changed once handed out.
type TopicState struct {
	Name       string
	ID         [16]byte
	Internal   bool
	Config     map[string]string // what was set; the rest has its default
	Settings   Settings
	Created    int64 // Unix milliseconds
	Partitions []PartitionAssignment
}

// PartitionAssignment says where a partition's replicas are, and where they shall be.
type PartitionAssignment struct {
	Partition int32
	Shard     uint64
	Replicas  []ReplicaAssignment // the first is the preferred leader
	// Target lists the nodes that shall have a voter, while those that have are not the same. Nil: it is as it shall be.
	Target []int32
	// Origin lists the nodes that it was on when a user gave it its target.
	Origin []int32
	// Wanted is how many replicas it had before a node was removed that had one of them and there was no other node for it; 0: it has what it shall have.
	// It gets them back as soon as there are nodes.
	Wanted int
	// NextIncarnation is that of the next replica, whatever its node: an id is never used twice.
	NextIncarnation uint32
}

// ReplicaAssignment is one replica.
type ReplicaAssignment struct {
	Node    int32
	Replica uint64
	Role    Role
}

// Role is what a replica is in its group.
type Role uint8

// The roles. Their names are in the metadata's records.
const (
	RoleVoter   Role = iota // a member of Raft's group, or an initial one
	RoleLearner             // it copies and does not vote, until Raft has it as a voter
	RoleLeaving             // to be removed
	RoleLost                // its files are gone or damaged: to be removed at once
)

var roleNames = [...]string{"voter", "learner", "leaving", "lost"}

// String names the role.
func (r Role) String() string { return roleNames[r] }
