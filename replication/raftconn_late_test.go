package replication

import (
	"testing"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"
)

func commitOnly(shard, to, commit uint64) pb.Message {
	return pb.Message{Type: pb.Replicate, ShardID: shard, To: to, From: 9, Term: 3, LogIndex: commit, Commit: commit}
}

// TestLateCommits: what only tells a commit index goes later, the newest of each replica, and not at all when entries told as much.
func TestLateCommits(t *testing.T) {
	sent := make(chan []pb.Message, 10)
	l := lateCommits{send: func(list []pb.Message) { sent <- list }}
	defer l.close()
	l.mu.Lock() // so that nothing is sent before all is said
	l.ticking = true
	l.mu.Unlock()
	entries := func(shard, to, commit uint64) pb.Message {
		m := commitOnly(shard, to, commit)
		m.Entries = []pb.Entry{{}}
		return m
	}
	now := l.sift([]pb.Message{
		commitOnly(1, 5, 10), commitOnly(1, 6, 10), commitOnly(2, 5, 4), {Type: pb.Heartbeat, ShardID: 1, To: 5},
		entries(1, 5, 10), commitOnly(1, 6, 11), entries(2, 5, 3),
	})
	if len(now) != 3 || now[0].Type != pb.Heartbeat || now[1].ShardID != 1 || now[2].ShardID != 2 {
		t.Fatalf("sent at once: %v", now)
	}
	l.fire()
	late := <-sent
	if len(late) != 2 {
		t.Fatalf("sent later: %v", late)
	}
	for _, m := range late {
		if want := map[lateKey]uint64{{1, 6}: 11, {2, 5}: 4}[lateKey{m.ShardID, m.To}]; m.Commit != want {
			t.Errorf("shard %d to %d: commit %d, want %d", m.ShardID, m.To, m.Commit, want)
		}
	}
	if now = l.sift([]pb.Message{commitOnly(7, 5, 1)}); len(now) != 0 {
		t.Fatalf("sent at once: %v", now)
	}
	select {
	case late = <-sent:
		if len(late) != 1 || late[0].ShardID != 7 {
			t.Errorf("sent later: %v", late)
		}
	case <-time.After(time.Minute):
		t.Fatal("what waits is not sent")
	}
	l.close()
	if now = l.sift([]pb.Message{commitOnly(7, 5, 2)}); len(now) != 1 {
		t.Errorf("after the end %d messages are left, want what was given", len(now))
	}
}
