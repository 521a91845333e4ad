package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/client"
	"github.com/lni/dragonboat/v4/config"
	"github.com/lni/dragonboat/v4/logger"
	chantrans "github.com/lni/dragonboat/v4/plugin/chan"
	"github.com/lni/dragonboat/v4/plugin/tan"
	"github.com/lni/dragonboat/v4/statemachine"
)

const (
	dragonboatAddress   = "127.0.0.1:26001" // a name: the transport is channels
	dragonboatReplica   = 1
	dragonboatElections = time.Minute
)

// dragonboatStore is a NodeHost on dragonboat's own log store tan, with a
// shard a partition and a state machine that writes the data a second time,
// as a log built on top of it would.
type dragonboatStore struct {
	host     *dragonboat.NodeHost
	sessions []*client.Session
}

func openDragonboat(ctx context.Context, dir string, shards int) (*dragonboatStore, error) {
	for _, name := range []string{"raft", "rsm", "transport", "grpc", "dragonboat", "logdb", "config", "raftpb", "utils", "registry", "order", "tan", "settings"} {
		logger.GetLogger(name).SetLevel(logger.ERROR)
	}
	hostConfig := config.NodeHostConfig{
		NodeHostDir:    filepath.Join(dir, "host"),
		RTTMillisecond: 20,
		RaftAddress:    dragonboatAddress,
	}
	hostConfig.Expert.LogDBFactory = tan.Factory
	hostConfig.Expert.TransportFactory = &channels{}
	host, err := dragonboat.NewNodeHost(hostConfig)
	if err != nil {
		return nil, err
	}
	d := &dragonboatStore{host: host}
	if err := d.start(ctx, dir, shards); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// start starts the shards and waits until each has a leader.
func (d *dragonboatStore) start(ctx context.Context, dir string, shards int) error {
	members := map[uint64]dragonboat.Target{dragonboatReplica: dragonboatAddress}
	for shard := uint64(1); shard <= uint64(shards); shard++ {
		file, err := os.Create(filepath.Join(dir, fmt.Sprintf("machine-%d", shard)))
		if err != nil {
			return err
		}
		err = d.host.StartOnDiskReplica(members, false,
			func(uint64, uint64) statemachine.IOnDiskStateMachine { return &fileMachine{file: file} },
			config.Config{ReplicaID: dragonboatReplica, ShardID: shard, ElectionRTT: 20, HeartbeatRTT: 2, CheckQuorum: true, PreVote: true})
		if err != nil {
			return err
		}
		d.sessions = append(d.sessions, d.host.GetNoOPSession(shard))
	}
	deadline := time.Now().Add(dragonboatElections)
	for shard := uint64(1); shard <= uint64(shards); shard++ {
		for {
			_, _, elected, err := d.host.GetLeaderID(shard)
			if err == nil && elected {
				break
			}
			if ctx.Err() != nil || time.Now().After(deadline) {
				return fmt.Errorf("shard %d: no leader: %w", shard, errors.Join(err, ctx.Err()))
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	return nil
}

func (d *dragonboatStore) Publish(ctx context.Context, partition int, value []byte) error {
	_, err := d.host.SyncPropose(ctx, d.sessions[partition], value)
	return err
}

func (d *dragonboatStore) Close() error {
	d.host.Close()
	return nil
}

// channels is dragonboat's transport inside one process, which takes any address.
type channels struct{ chantrans.ChanTransportFactory }

func (*channels) Validate(string) bool { return true }

// fileMachine appends each command to a file.
type fileMachine struct {
	file *os.File
	at   int64
}

func (m *fileMachine) Open(<-chan struct{}) (uint64, error) { return 0, nil }

func (m *fileMachine) Update(entries []statemachine.Entry) ([]statemachine.Entry, error) {
	for i := range entries {
		if _, err := m.file.WriteAt(entries[i].Cmd, m.at); err != nil {
			return nil, err
		}
		m.at += int64(len(entries[i].Cmd))
		entries[i].Result.Value = entries[i].Index
	}
	return entries, nil
}

func (m *fileMachine) Lookup(any) (any, error)                              { return m.at, nil }
func (m *fileMachine) Sync() error                                          { return m.file.Sync() }
func (m *fileMachine) PrepareSnapshot() (any, error)                        { return nil, nil }
func (m *fileMachine) SaveSnapshot(any, io.Writer, <-chan struct{}) error   { return nil }
func (m *fileMachine) RecoverFromSnapshot(io.Reader, <-chan struct{}) error { return nil }
func (m *fileMachine) Close() error                                         { return m.file.Close() }
