package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/billetlog/billet"
)

// command splits off a command that stands before the flags and works on a directory
// that no node has open. do is nil where there is none.
func command(args []string) (do func(*billet.Config, io.Writer) error, rest []string, err error) {
	if len(args) == 0 {
		return nil, args, nil
	}
	switch args[0] {
	case "recover-cluster":
		return recoverCluster, args[1:], nil
	case "follow-cluster":
		if len(args) < 2 {
			return nil, nil, errors.New("follow-cluster needs the generation that recover-cluster told")
		}
		generation, err := strconv.ParseUint(args[1], 10, 64)
		if err != nil {
			return nil, nil, fmt.Errorf("follow-cluster: %q is no generation: give the number that recover-cluster told", args[1])
		}
		return func(c *billet.Config, out io.Writer) error { return followCluster(c, generation, out) }, args[2:], nil
	}
	return nil, args, nil
}

// recoverCluster makes the node the cluster.
func recoverCluster(c *billet.Config, out io.Writer) error {
	r, err := billet.RecoverCluster(context.Background(), c.Dir, c.NodeID)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "node %d is the cluster now; generation %d, metadata to offset %d\nstart it; then, for each other node that is left: billetd follow-cluster %d -dir DIR -id N\n",
		c.NodeID, r.Generation, r.MetadataEnd, r.Generation)
	return err
}

// followCluster lets the node follow the one that became the cluster.
func followCluster(c *billet.Config, generation uint64, out io.Writer) error {
	if err := billet.FollowCluster(c.Dir, c.NodeID, generation); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "node %d follows generation %d: start it, with -join leading to the recovered node\n", c.NodeID, generation)
	return err
}

// What a request may take.
const (
	decideTimeout  = 20 * time.Second // for what the cluster decides
	recoverTimeout = 10 * time.Minute // for that and the copying of a partition's log
	passwordMax    = 1 << 10          // bytes of a password
)

// handleAdmin lets those who are on the machine, and no web page that one of them looks
// at, change the cluster.
func handleAdmin(mux *http.ServeMux, n *node) {
	protection := http.NewCrossOriginProtection()
	within := func(timeout time.Duration, pattern string, do action) {
		mux.Handle(pattern, protection.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), timeout)
			defer cancel()
			answer(w, r.WithContext(ctx), n, do)
		})))
	}
	handle := func(pattern string, do action) { within(decideTimeout, pattern, do) }
	handle("GET /nodes", func(l *billet.Log, r *http.Request) (any, error) { return l.Nodes(r.Context()) })
	for name, do := range map[string]func(*billet.Log, context.Context, int32) error{
		"drain": (*billet.Log).DrainNode, "activate": (*billet.Log).ActivateNode, "remove": (*billet.Log).RemoveNode} {
		handle("POST /nodes/{id}/"+name, func(l *billet.Log, r *http.Request) (any, error) {
			id, err := number(r, "id")
			if err != nil {
				return nil, err
			}
			if err := do(l, r.Context(), id); err != nil {
				return nil, err
			}
			return l.Nodes(r.Context())
		})
	}
	handle("POST /users/{name}", func(l *billet.Log, r *http.Request) (any, error) {
		password, err := io.ReadAll(io.LimitReader(r.Body, passwordMax+1))
		if err != nil || len(password) == 0 || len(password) > passwordMax {
			return nil, fmt.Errorf("the body must be the password, %d bytes at most", passwordMax)
		}
		return nil, l.SetKafkaUser(r.Context(), r.PathValue("name"), string(password))
	})
	handle("DELETE /users/{name}", func(l *billet.Log, r *http.Request) (any, error) {
		return nil, l.DeleteKafkaUser(r.Context(), r.PathValue("name"))
	})
	handle("POST /topics/{topic}/replicas/{n}", func(l *billet.Log, r *http.Request) (any, error) {
		replicas, err := number(r, "n")
		if err != nil {
			return nil, err
		}
		if err := l.AlterTopic(r.Context(), r.PathValue("topic"), billet.Alter{Replicas: int(replicas)}); err != nil {
			return nil, err
		}
		return l.Topic(r.Context(), r.PathValue("topic"))
	})
	within(recoverTimeout, "POST /topics/{topic}/partitions/{partition}/recover", func(l *billet.Log, r *http.Request) (any, error) {
		partition, err := number(r, "partition")
		if err != nil {
			return nil, err
		}
		return l.RecoverPartition(r.Context(), r.PathValue("topic"), partition)
	})
}

// action is what a request asks for, and what to answer.
type action func(l *billet.Log, r *http.Request) (any, error)

// number is a part of the path.
func number(r *http.Request, name string) (int32, error) {
	n, err := strconv.ParseUint(r.PathValue(name), 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%q is no number that can be", r.PathValue(name))
	}
	return int32(n), nil
}

// answer does what was asked and tells how it went.
func answer(w http.ResponseWriter, r *http.Request, n *node, do action) {
	// A name that leads here may be one that a web page made lead here.
	host, _, err := net.SplitHostPort(r.Host)
	if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		http.Error(w, "ask at an address of this machine, such as 127.0.0.1", http.StatusForbidden)
		return
	}
	log := n.log.Load()
	if log == nil || n.stopping.Load() {
		http.Error(w, "the node is not open", http.StatusServiceUnavailable)
		return
	}
	control := http.NewResponseController(w)
	_, _ = control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{})
	result, err := do(log, r)
	switch {
	case err == nil && result == nil:
		w.WriteHeader(http.StatusNoContent)
	case err == nil:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(result)
	case errors.Is(err, context.DeadlineExceeded):
		http.Error(w, err.Error()+": most of the nodes that keep the cluster's metadata may be gone: docs/failures.md", http.StatusGatewayTimeout)
	case billet.Retriable(err):
		http.Error(w, err.Error()+": try again", http.StatusServiceUnavailable)
	default:
		http.Error(w, err.Error(), http.StatusConflict)
	}
}
