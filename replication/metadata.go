package replication

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// The records of __cluster_metadata: the key says what the record is about, and the newest record of a key counts; values are JSON, with a
// version. A version or kind that this code does not know is an error: guessing would act on half of the truth.
type metadataRecord struct {
	key string
	val metadataValue
}

type metadataValue struct {
	Version int    `json:"v"`
	Kind    string `json:"kind"`

	// kind topic
	Name       string              `json:"name,omitempty"`
	ID         string              `json:"id,omitempty"`
	Internal   bool                `json:"internal,omitempty"`
	Deleted    bool                `json:"deleted,omitempty"`
	Created    int64               `json:"created,omitempty"`
	Config     map[string]string   `json:"config,omitempty"`
	Partitions []metadataPartition `json:"partitions,omitempty"`

	// kind node
	Node    int32  `json:"node,omitempty"`
	Dir     string `json:"dir,omitempty"`
	Address string `json:"address,omitempty"`
	Rack    string `json:"rack,omitempty"`
	Mode    string `json:"mode,omitempty"`

	Endpoints []Endpoint `json:"endpoints,omitempty"`

	// kind entry; one that is deleted has no value
	EntryKind string `json:"entry-kind,omitempty"`
	EntryKey  []byte `json:"entry-key,omitempty"`
	Value     []byte `json:"value,omitempty"`

	// kind start, with the topic's id
	Partition int32 `json:"partition,omitempty"`
	Start     int64 `json:"start,omitempty"`

	// kinds producer-ids and shards
	Next int64 `json:"next,omitempty"`
}

type metadataPartition struct {
	Shard    uint64            `json:"shard"`
	Replicas []metadataReplica `json:"replicas"`
	Target   []int32           `json:"target,omitempty"`
	Origin   []int32           `json:"origin,omitempty"`
	Wanted   int               `json:"wanted,omitempty"`
	Next     uint32            `json:"next,omitempty"` // incarnation; left out: firstIncarnation+1
}

type metadataReplica struct {
	Node    int32  `json:"node"`
	Replica uint64 `json:"replica"`
	Role    string `json:"role,omitempty"` // left out: voter
}

const (
	metadataVersion = 1
	kindTopic       = "topic"
	kindNode        = "node"
	kindProducerIDs = "producer-ids"
	kindShards      = "shards"
	kindEntry       = "entry"
	kindStart       = "start"
)

func topicRecord(t *TopicState, deleted bool) metadataRecord {
	v := metadataValue{
		Version: metadataVersion, Kind: kindTopic, Name: t.Name, ID: hex.EncodeToString(t.ID[:]), Internal: t.Internal,
		Deleted: deleted, Created: t.Created, Config: t.Config,
	}
	for _, p := range t.Partitions {
		mp := metadataPartition{Shard: p.Shard, Target: p.Target, Origin: p.Origin, Wanted: p.Wanted}
		if p.NextIncarnation != firstIncarnation+1 {
			mp.Next = p.NextIncarnation
		}
		for _, r := range p.Replicas {
			mr := metadataReplica{Node: r.Node, Replica: r.Replica}
			if r.Role != RoleVoter {
				mr.Role = r.Role.String()
			}
			mp.Replicas = append(mp.Replicas, mr)
		}
		v.Partitions = append(v.Partitions, mp)
	}
	return metadataRecord{key: kindTopic + "/" + v.ID, val: v}
}

func nodeRecord(n NodeState) metadataRecord {
	return metadataRecord{key: fmt.Sprintf("%s/%d", kindNode, n.ID), val: metadataValue{
		Version: metadataVersion, Kind: kindNode, Node: n.ID, Dir: hex.EncodeToString(n.Dir[:]), Address: n.Address, Rack: n.Rack, Mode: n.Mode.String(),
		Endpoints: n.Endpoints,
	}}
}

func producerIDsRecord(next int64) metadataRecord {
	return metadataRecord{key: kindProducerIDs, val: metadataValue{Version: metadataVersion, Kind: kindProducerIDs, Next: next}}
}

func shardsRecord(next uint64) metadataRecord {
	return metadataRecord{key: kindShards, val: metadataValue{Version: metadataVersion, Kind: kindShards, Next: int64(next)}}
}

func (r metadataRecord) encode() (key, value []byte, err error) {
	value, err = json.Marshal(r.val)
	if err != nil {
		return nil, nil, fmt.Errorf("replication: encoding metadata: %w", err)
	}
	return []byte(r.key), value, nil
}

func decodeReplicas(p *metadataPartition) ([]ReplicaAssignment, error) {
	out := make([]ReplicaAssignment, 0, len(p.Replicas))
	for _, r := range p.Replicas {
		a := ReplicaAssignment{Node: r.Node, Replica: r.Replica}
		if r.Role != "" {
			role, ok := parseRole(r.Role)
			if !ok {
				return nil, fmt.Errorf("replication: unknown role %q: use a newer program", r.Role)
			}
			a.Role = role
		}
		out = append(out, a)
	}
	return out, nil
}

func parseRole(name string) (Role, bool) {
	for i, n := range roleNames {
		if n == name {
			return Role(i), true
		}
	}
	return 0, false
}
