package replication

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/billetlog/billet/internal/vfs"
)

func (m *member) endpointsOf(id int32) []Endpoint {
	for _, n := range m.Nodes() {
		if n.ID == id {
			return n.Endpoints
		}
	}
	return nil
}

// Where a node serves clients is in the records once it opens, is written again only when it changed, and can be changed while it is open.
func TestEndpointsAlone(t *testing.T) {
	fs := memDir(t)
	first := []Endpoint{{"PLAIN", "box", 9092}, {"TLS", "::1", 9093}}
	open := func(list []Endpoint) *member {
		n, err := OpenNode(testContext(t), NodeConfig{ID: 1, Host: HostConfig{FS: fs, Dir: "/data", JournalBytes: 1 << 20, Endpoints: list}})
		if err != nil {
			t.Fatal(err)
		}
		return &member{Node: n, net: &memberNet{t: t}}
	}
	m := open(first)
	if got := m.endpointsOf(1); !slices.Equal(got, first) {
		t.Errorf("at the first open: %v", got)
	}
	end := m.Controller.meta().HighWatermark()
	m.close()
	m = open(first)
	if now := m.Controller.meta().HighWatermark(); now != end {
		t.Errorf("the same list was written again: %d, before %d", now, end)
	}
	version := m.Controller.Version()
	second := []Endpoint{{"PLAIN", "box", 31000}}
	if err := m.Controller.SetEndpoints(testContext(t), second); err != nil {
		t.Fatal(err)
	}
	if got := m.endpointsOf(1); !slices.Equal(got, second) || m.Controller.Version() == version {
		t.Errorf("after a change: %v", got)
	}
	for what, bad := range map[string][]Endpoint{
		"no host": {{"a", "", 1}}, "port 0": {{"a", "h", 0}}, "a port too high": {{"a", "h", 65536}}, "the same name": {{"a", "h", 1}, {"a", "i", 2}},
		"a long host": {{"a", strings.Repeat("h", 256), 1}}, "too many": make([]Endpoint, 17),
	} {
		if err := m.Controller.SetEndpoints(testContext(t), bad); !errors.Is(err, ErrInvalidConfig) {
			t.Errorf("%s: %v", what, err)
		}
	}
	m.close()
	m = open(nil)
	if got := m.endpointsOf(1); got != nil {
		t.Errorf("opened without any: %v", got)
	}
	m.close()
}

// A record without endpoints is that of a node that serves no clients.
func TestEndpointsOfOldRecord(t *testing.T) {
	v := newView()
	err := v.apply(nil, []byte(`{"v":1,"kind":"node","node":3,"dir":"00000000000000000000000000000003","mode":"active"}`))
	if n := v.nodes[3]; err != nil || n.ID != 3 || n.Endpoints != nil {
		t.Errorf("%+v, %v", n, err)
	}
}

// All nodes know where the others serve clients, which of them are up, and who leads the metadata.
func TestEndpointsOfOthers(t *testing.T) {
	n := newMemberNet(t)
	all := n.trioOf(0, vfs.NewMem(), vfs.NewMem(), vfs.NewMem())
	all[0].until("three voters", metadataVoters3)
	want := []Endpoint{{"PLAIN", "three", 9092}}
	if err := all[2].Controller.SetEndpoints(testContext(t), want); err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		m.until("the endpoints", func(c *Controller) bool { return slices.Equal(c.mu.nodes[3].Endpoints, want) })
		eventually(t, "who leads", func() bool { id, epoch := m.Controller.MetadataLeader(); return id > 0 && epoch > 0 })
		for id := int32(0); id < 5; id++ {
			if is := id >= 1 && id <= 3; is != m.Alive(id) {
				t.Errorf("node %d says that %d is alive: %v", m.cfg.ID, id, !is)
			}
		}
	}
	// A list that is told late is corrected.
	q := all[2].Host.registration()
	q.Endpoints = []Endpoint{{"PLAIN", "stale", 1}}
	var a decideAnswer
	for _, m := range all {
		if m.Controller.meta().Epoch() != 0 && m != all[2] {
			if err := all[2].Host.callJSON(testContext(t), m.cfg.ID, requestDecide, decideRequest{Name: "register", Args: mustJSON(q)}, &a); err != nil || a.Err != "" {
				t.Fatal(err, a.Err)
			}
		}
	}
	all[0].until("the newer endpoints", func(c *Controller) bool { return slices.Equal(c.mu.nodes[3].Endpoints, want) })
	all[2].close()
	eventually(t, "the third is down", func() bool { return !all[0].Alive(3) && all[0].Alive(2) })
	all[1].close()
	all[0].close()
}

// A node registers again when the answer does not come, and opens all the same.
func TestRegisterAgain(t *testing.T) {
	n := newMemberNet(t)
	all := n.trioOf(0, vfs.NewMem(), vfs.NewMem(), vfs.NewMem())
	all[0].until("three voters", metadataVoters3)
	var asked atomic.Int32
	over := make(chan struct{})
	for _, m := range all {
		m.Host.serve(requestDecide, func(ctx context.Context, from int32, payload []byte) ([]byte, error) {
			switch asked.Add(1) {
			case 1: // it does not answer
				<-over
			case 2:
				return json.Marshal(decideAnswer{Code: codeOf(ErrClosed), Err: "it closes"})
			case 3:
				return json.Marshal(decideAnswer{Code: codeOf(context.Canceled), Err: "it closes"})
			}
			return m.Controller.answerDecide(ctx, from, payload)
		})
	}
	for _, m := range all {
		m.Controller.patience = time.Second
		if id, _ := m.Controller.MetadataLeader(); id == m.cfg.ID {
			continue
		}
		if err := m.Controller.SetEndpoints(testContext(t), []Endpoint{{"PLAIN", "box", 9092}}); err != nil {
			t.Errorf("node %d: %v", m.cfg.ID, err)
		}
	}
	close(over)
	if asked.Load() < 4 {
		t.Errorf("the metadata's leader was asked %d times", asked.Load())
	}
	for _, m := range all {
		m.close()
	}
}
