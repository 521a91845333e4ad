package billet

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// TestClusterBounds gives each field of Cluster a value that it must not have.
func TestClusterBounds(t *testing.T) {
	for field, c := range map[string]Cluster{
		"Cluster.Listen":                {Join: []string{"127.0.0.1:1"}},
		"Cluster.Name":                  {Name: strings.Repeat("n", maxClusterName+1)},
		"Cluster.Bootstrap":             {Listen: "127.0.0.1:0", Join: []string{"127.0.0.1:1"}, Bootstrap: []int32{2, 3}},
		"Cluster.Join":                  {Listen: "127.0.0.1:0", Bootstrap: []int32{1, 2}},
		"Cluster.GossipKey":             {GossipKey: make([]byte, 17)},
		"Cluster.CatchupBytesPerSecond": {CatchupBytesPerSecond: minCatchupRate - 1},
		"Cluster.ReplicaLagTimeMax":     {ReplicaLagTimeMax: time.Second - 1},
	} {
		_, err := Open(Config{Dir: t.TempDir(), Cluster: c})
		if !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), field+" is ") {
			t.Errorf("%s out of bounds: %v", field, err)
		}
	}
	good := Config{Dir: "d", Cluster: Cluster{CatchupBytesPerSecond: minCatchupRate, ReplicaLagTimeMax: time.Second}}
	good.EnsureDefaults()
	if err := good.Validate(); err != nil {
		t.Error(err)
	}
}
