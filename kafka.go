package billet

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/billetlog/billet/transport"
	"github.com/billetlog/billet/transport/kafka"
)

// Kafka says where the node serves Kafka's protocol, so that any Kafka client is a
// client of it. The zero value is a node without a listener.
type Kafka struct {
	// Addr is the address of the listener, host:port. Port 0 takes a free one, which
	// KafkaAddr tells. Default "": no listener.
	Addr string
	// Advertise is what clients are told instead of Addr, host:port, as behind a
	// translation of addresses. Default: Addr, with the machine's name where it is all
	// addresses.
	Advertise string
	// TLS encrypts what goes over the listener. Default: it does not.
	TLS KafkaTLS
	// SASL are the mechanisms by which clients prove who they are: PLAIN,
	// SCRAM-SHA-256, SCRAM-SHA-512. They see the same users, which SetKafkaUser and
	// Kafka's own tools make. PLAIN shows passwords to who can read the network: use
	// it with TLS. Default none: clients are anonymous, or who their certificates say.
	SASL []string
	// Listeners are more of them, besides that at Addr, such as one for clients outside.
	// Each name must be the same on all nodes: a client is told the addresses of the
	// listener of that name.
	Listeners []KafkaListener
	// AllowAnonymous lets a listener be open to everybody who reaches it, without
	// SASL and without certificates of clients, at an address that is not of this
	// machine only. Default false: such a listener is refused.
	AllowAnonymous bool

	// Authorize makes access rules count, Kafka's ACLs, which Kafka's own tools make:
	// what no rule allows is refused, but to SuperUsers. Default false: who may
	// connect may do everything. It should be the same on all nodes.
	Authorize bool
	// SuperUsers are those who may do everything: "User:name" by SASL, or "User:" and
	// the distinguished name of a certificate, such as "User:CN=admin".
	SuperUsers []string

	// AutoCreateTopics makes a topic when a client asks for one that is not there,
	// Kafka's auto.create.topics.enable. Default false.
	AutoCreateTopics bool
	// DefaultPartitions is how many partitions a topic gets whose maker does not say,
	// Kafka's num.partitions. Default 1.
	DefaultPartitions int
	// ClampReplicationFactor gives a topic as many replicas as there are nodes where a
	// client asks for more, as programs made for three nodes do. Default false: that is
	// refused, as Kafka does.
	ClampReplicationFactor bool

	// ConnectionsMax bounds the connections to all listeners, ConnectionsPerHostMax
	// those from one address; further ones are closed. Defaults 10,000 and half of
	// ConnectionsMax.
	ConnectionsMax, ConnectionsPerHostMax int
	// RequestBytesMax bounds one request, Kafka's socket.request.max.bytes. Default
	// 100 MiB; at least 1 KiB.
	RequestBytesMax int
	// RequestMemoryMax bounds the requests that are held at one time, FetchMemoryMax
	// the records that are on their way to clients: while one is used up clients wait.
	// Defaults 128 MiB and 64 MiB; RequestMemoryMax at least RequestBytesMax.
	RequestMemoryMax, FetchMemoryMax int64
	// IdleTimeout ends connections that ask nothing, Kafka's connections.max.idle.ms.
	// Default 10 minutes.
	IdleTimeout time.Duration
	// ReauthAfter is how long a client that proved who it is by SASL may go on before
	// it has to do it again, Kafka's connections.max.reauth.ms. Default 0: for ever,
	// also if its user is deleted meanwhile.
	ReauthAfter time.Duration
}

// KafkaListener is one more listener. Addr and Name are required; the fields are those of
// Kafka.
type KafkaListener struct {
	// Name tells listeners apart. The one at Kafka.Addr is "CLIENT".
	Name            string
	Addr, Advertise string
	TLS             KafkaTLS
	SASL            []string
}

// KafkaTLS are the files of a listener that encrypts, PEM. They are read again when they
// change; connections that stand are not touched. The zero value does not encrypt.
type KafkaTLS struct {
	// CertFile and KeyFile hold the node's certificate chain and key.
	CertFile, KeyFile string
	// ClientCAFile holds the certificates that clients' chains must lead to. Default "":
	// clients need no certificate.
	ClientCAFile string
}

// mainListener is the name of the listener at Kafka.Addr.
const mainListener = "CLIENT"

// listeners are all of them.
func (k *Kafka) listeners() []KafkaListener {
	if k.Addr == "" {
		return nil
	}
	return append([]KafkaListener{{Name: mainListener, Addr: k.Addr, Advertise: k.Advertise, TLS: k.TLS, SASL: k.SASL}}, k.Listeners...)
}

func (k *Kafka) clone() {
	k.SASL, k.SuperUsers, k.Listeners = slices.Clone(k.SASL), slices.Clone(k.SuperUsers), slices.Clone(k.Listeners)
	for i := range k.Listeners {
		k.Listeners[i].SASL = slices.Clone(k.Listeners[i].SASL)
	}
}

func (k *Kafka) validate() error {
	if k.Addr == "" {
		if len(k.Listeners) > 0 {
			return invalidField("Kafka.Addr", `""`, "an address, when there are Listeners")
		}
		return nil
	}
	names := map[string]bool{}
	for i, l := range k.listeners() {
		field := "Kafka."
		if i > 0 {
			field = fmt.Sprintf("Kafka.Listeners[%d].", i-1)
		}
		if l.Name == "" || names[l.Name] {
			return invalidField(field+"Name", fmt.Sprintf("%q", l.Name), "a name that no other listener has; the one at Kafka.Addr is %q", mainListener)
		}
		names[l.Name] = true
		if err := l.validate(field, k.AllowAnonymous); err != nil {
			return err
		}
	}
	for _, name := range k.SuperUsers {
		if !strings.HasPrefix(name, "User:") {
			return invalidField("Kafka.SuperUsers", name, `"User:" and a name`)
		}
	}
	return k.validateBounds()
}

func (k *Kafka) validateBounds() error {
	for name, value := range map[string]int64{
		"DefaultPartitions": int64(k.DefaultPartitions), "ConnectionsMax": int64(k.ConnectionsMax), "ConnectionsPerHostMax": int64(k.ConnectionsPerHostMax),
		"RequestBytesMax": int64(k.RequestBytesMax), "RequestMemoryMax": k.RequestMemoryMax, "FetchMemoryMax": k.FetchMemoryMax,
		"IdleTimeout": int64(k.IdleTimeout), "ReauthAfter": int64(k.ReauthAfter),
	} {
		if value < 0 {
			return invalidField("Kafka."+name, value, "0 or more")
		}
	}
	return nil
}

// validate looks at one listener, whose fields have that name in Config.
func (l *KafkaListener) validate(field string, open bool) error {
	for name, address := range map[string]string{"Addr": l.Addr, "Advertise": l.Advertise} {
		if _, _, err := net.SplitHostPort(address); err != nil && (address != "" || name == "Addr") {
			return invalidField(field+name, fmt.Sprintf("%q", address), "host:port")
		}
	}
	for _, name := range l.SASL {
		if !slices.Contains(kafka.Mechanisms(), name) {
			return invalidField(field+"SASL", name, "some of %v", kafka.Mechanisms())
		}
	}
	switch {
	case (l.TLS.CertFile == "") != (l.TLS.KeyFile == ""):
		return invalidField(field+"TLS", "one of CertFile and KeyFile", "both, or neither")
	case l.TLS.ClientCAFile != "" && l.TLS.CertFile == "":
		return invalidField(field+"TLS.ClientCAFile", l.TLS.ClientCAFile, "empty, unless there are CertFile and KeyFile")
	case !open && len(l.SASL) == 0 && l.TLS.ClientCAFile == "" && !isLoopback(l.Addr):
		return invalidField(field+"Addr", l.Addr, "an address of this machine only, such as 127.0.0.1:9092, since the listener is open to everybody: "+
			"or give it SASL, or TLS.ClientCAFile, or set Kafka.AllowAnonymous where the network keeps others out")
	}
	return nil
}

// isLoopback says whether only this machine reaches an address. A name that is not an
// address may lead anywhere.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}

// KafkaAddr returns the address that Kafka clients of the listener at Kafka.Addr are
// told, host:port, or "" when there is no listener.
func (l *Log) KafkaAddr() string { return l.KafkaListenerAddr(mainListener) }

// KafkaListenerAddr returns the address that clients of a listener are told, host:port,
// or "" when there is no listener of that name.
func (l *Log) KafkaListenerAddr(name string) string {
	n, ok := l.node.(*machineNode)
	if !ok || n.kafka == nil {
		return ""
	}
	for _, e := range n.kafka.Endpoints() {
		if e.Name == name {
			return net.JoinHostPort(e.Host, fmt.Sprint(e.Port))
		}
	}
	return ""
}

// openKafka starts the listeners.
func (n *machineNode) openKafka(ctx context.Context, config *Config) (err error) {
	k := &config.Kafka
	if k.Addr == "" {
		return nil
	}
	logger := config.Logger
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	opts := kafka.Options{
		Broker: n.broker, Store: n.broker, Logger: logger, AutoCreateTopics: k.AutoCreateTopics, DefaultPartitions: k.DefaultPartitions,
		ClampReplicationFactor: k.ClampReplicationFactor, Authorize: k.Authorize, SuperUsers: k.SuperUsers,
		ConnectionsMax: k.ConnectionsMax, ConnectionsPerHostMax: k.ConnectionsPerHostMax,
		RequestBytesMax: k.RequestBytesMax, RequestMemoryMax: k.RequestMemoryMax, FetchMemoryMax: k.FetchMemoryMax,
		IdleTimeout: k.IdleTimeout, ReauthAfter: k.ReauthAfter,
	}
	for _, l := range k.listeners() {
		listener, err := l.open(logger)
		if err != nil {
			return err
		}
		opts.Listeners = append(opts.Listeners, listener)
	}
	if n.kafka, err = kafka.Open(opts); err != nil {
		return err
	}
	if err := n.broker.Announce(ctx, n.kafka.Endpoints()); err != nil {
		return err
	}
	n.kafka.Serve()
	return nil
}

// open reads the files of a listener.
func (l *KafkaListener) open(logger *slog.Logger) (kafka.Listener, error) {
	out := kafka.Listener{Name: l.Name, Address: l.Addr, Advertise: l.Advertise, SASL: l.SASL}
	if slices.Contains(l.SASL, "PLAIN") && l.TLS.CertFile == "" && !isLoopback(l.Addr) {
		logger.Warn("a Kafka listener takes passwords that are not encrypted: give it TLS", "listener", l.Name, "address", l.Addr)
	}
	if l.TLS.CertFile == "" {
		return out, nil
	}
	var err error
	out.TLS, err = transport.NewServerTLS(transport.ServerTLSOptions{
		CertFile: l.TLS.CertFile, KeyFile: l.TLS.KeyFile, ClientCAFile: l.TLS.ClientCAFile,
		OnReload: func(err error) {
			if err != nil {
				logger.Error("the certificates of a Kafka listener changed and cannot be used: it goes on with the old ones", "listener", l.Name, "err", err)
				return
			}
			logger.Info("the certificates of a Kafka listener were read again", "listener", l.Name)
		},
	})
	if err != nil {
		return out, fmt.Errorf("billet: Kafka listener %s: %w", l.Name, err)
	}
	return out, nil
}
