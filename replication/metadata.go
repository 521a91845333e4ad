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

	// kind producer-ids
	Next int64 `json:"next,omitempty"`
}

type metadataPartition struct {
	Shard    uint64            `json:"shard"`
	Replicas []metadataReplica `json:"replicas"`
}

type metadataReplica struct {
	Node    int32  `json:"node"`
	Replica uint64 `json:"replica"`
}

const (
	metadataVersion = 1
	kindTopic       = "topic"
	kindProducerIDs = "producer-ids"
)

func topicRecord(t *TopicState, deleted bool) metadataRecord {
	v := metadataValue{
		Version: metadataVersion, Kind: kindTopic, Name: t.Name, ID: hex.EncodeToString(t.ID[:]), Internal: t.Internal,
		Deleted: deleted, Created: t.Created, Config: t.Config,
	}
	for _, p := range t.Partitions {
		mp := metadataPartition{Shard: p.Shard}
		for _, r := range p.Replicas {
			mp.Replicas = append(mp.Replicas, metadataReplica{Node: r.Node, Replica: r.Replica})
		}
		v.Partitions = append(v.Partitions, mp)
	}
	return metadataRecord{key: kindTopic + "/" + v.ID, val: v}
}

func producerIDsRecord(next int64) metadataRecord {
	return metadataRecord{key: kindProducerIDs, val: metadataValue{Version: metadataVersion, Kind: kindProducerIDs, Next: next}}
}

func (r metadataRecord) encode() (key, value []byte, err error) {
	value, err = json.Marshal(r.val)
	if err != nil {
		return nil, nil, fmt.Errorf("replication: encoding metadata: %w", err)
	}
	return []byte(r.key), value, nil
}

// apply folds one record into the view.
func (c *Controller) apply(key, value []byte) error {
	var v metadataValue
	if err := json.Unmarshal(value, &v); err != nil {
		return fmt.Errorf("replication: record %q: %w", key, err)
	}
	if v.Version != metadataVersion {
		return fmt.Errorf("replication: record %q has version %d, this program knows %d: use a newer one", key, v.Version, metadataVersion)
	}
	switch v.Kind {
	case kindTopic:
		return c.applyTopic(&v)
	case kindProducerIDs:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mu.nextBlock = max(c.mu.nextBlock, v.Next)
		return nil
	}
	return fmt.Errorf("replication: record %q is of the unknown kind %q: use a newer program", key, v.Kind)
}

func (c *Controller) applyTopic(v *metadataValue) error {
	t := &TopicState{Name: v.Name, Internal: v.Internal, Created: v.Created, Config: v.Config}
	id, err := hex.DecodeString(v.ID)
	if err != nil || len(id) != len(t.ID) {
		return fmt.Errorf("replication: topic %q has the id %q", v.Name, v.ID)
	}
	copy(t.ID[:], id)
	if t.Settings, err = ParseSettings(v.Config); err != nil {
		return fmt.Errorf("replication: topic %q: %w", v.Name, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, p := range v.Partitions {
		if len(p.Replicas) == 0 {
			return fmt.Errorf("replication: topic %q partition %d has no replica", v.Name, i)
		}
		a := PartitionAssignment{Partition: int32(i), Shard: p.Shard}
		for _, r := range p.Replicas {
			a.Replicas = append(a.Replicas, ReplicaAssignment{Node: r.Node, Replica: r.Replica})
		}
		t.Partitions = append(t.Partitions, a)
		c.mu.nextShard = max(c.mu.nextShard, p.Shard+1)
		c.mu.deleted[p.Shard] = v.Deleted
	}
	if v.Deleted {
		if name, ok := c.mu.byID[t.ID]; ok {
			c.mu.gone = append(c.mu.gone, c.mu.partitions[name]...)
			delete(c.mu.topics, name)
			delete(c.mu.partitions, name)
			delete(c.mu.byID, t.ID)
		}
		return nil
	}
	c.mu.topics[t.Name] = t
	c.mu.byID[t.ID] = t.Name
	running, parts := c.mu.partitions[t.Name], c.mu.starting[t.ID]
	if len(parts) > 0 && len(running)+len(parts) == len(t.Partitions) {
		c.mu.partitions[t.Name] = append(running[:len(running):len(running)], parts...)
		delete(c.mu.starting, t.ID)
	}
	return nil
}
