package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/billetlog/billet"
)

// node is the log, as far as it is open.
type node struct {
	log      atomic.Pointer[billet.Log] // nil until it is open
	stopping atomic.Bool
}

// web serves metrics and health. Its zero value serves nothing.
type web struct {
	listener net.Listener
	server   *http.Server
}

const (
	webTimeout   = 30 * time.Second // for a request
	webCloseTime = time.Second      // for requests under way when the program ends
)

// openWeb begins to serve, unless address is "". With admin it takes changes as well.
func openWeb(address string, admin bool, n *node, logger *slog.Logger) (*web, error) {
	if address == "" {
		return &web{}, nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("-http: %w: give an address that is free, or \"\" for nowhere", err)
	}
	mux := http.NewServeMux()
	if admin {
		if at, ok := listener.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
			_ = listener.Close()
			return nil, fmt.Errorf("-admin: -http is %s, where others could make changes, too: give an address of this machine, such as 127.0.0.1:9644", address)
		}
		handleAdmin(mux, n)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(newCollector(n), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if why := n.unready(); len(why) > 0 {
			http.Error(w, strings.Join(why, "\n"), http.StatusServiceUnavailable)
			return
		}
		_, _ = fmt.Fprintln(w, "ok")
	})
	s := &web{listener: listener, server: &http.Server{Handler: mux, ReadHeaderTimeout: webTimeout, ReadTimeout: webTimeout, WriteTimeout: webTimeout}}
	go func() {
		if err := s.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("metrics and health are not served any more", "err", err)
		}
	}()
	return s, nil
}

// address is where it listens, "" for nowhere.
func (s *web) address() string {
	if s.listener == nil {
		return ""
	}
	return s.listener.Addr().String()
}

func (s *web) close() {
	if s.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), webCloseTime)
	defer cancel()
	if s.server.Shutdown(ctx) != nil {
		_ = s.server.Close()
	}
}

// partitionsShown bounds the partitions that are named as reasons.
const partitionsShown = 10

// unready says why the node cannot serve: it is not open, or ends; the disk is full; or
// partitions are neither led nor followed.
func (n *node) unready() (why []string) {
	log := n.log.Load()
	switch {
	case n.stopping.Load():
		return []string{"the node stops"}
	case log == nil:
		return []string{"the node is not open yet"}
	}
	m := log.Metrics()
	if len(m.Topics) == 0 {
		why = append(why, "the cluster's metadata is not known")
	}
	if m.DiskFull {
		why = append(why, fmt.Sprintf("the disk is full: %d bytes are free", m.DiskFree))
	}
	bad := 0
	for i := range m.Topics {
		for j := range m.Topics[i].Partitions {
			p := &m.Topics[i].Partitions[j]
			if p.State == billet.StateLeader || p.State == billet.StateFollower {
				continue
			}
			if bad++; bad <= partitionsShown {
				why = append(why, fmt.Sprintf("%s-%d is %s", m.Topics[i].Name, p.Partition, p.State))
			}
		}
	}
	if bad > partitionsShown {
		why = append(why, fmt.Sprintf("and %d more partitions", bad-partitionsShown))
	}
	return why
}
