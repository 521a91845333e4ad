package kafka

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"time"
)

// Options say how a server is. The zero value of a field means its default.
type Options struct {
	// Broker is the node behind it. Required.
	Broker Broker
	// Listeners are where clients connect. At least one.
	Listeners []Listener
	// Logger gets what an operator may want to know. Default: nobody.
	Logger *slog.Logger

	// AutoCreateTopics makes topics that clients ask for: false by default, Kafka's
	// auto.create.topics.enable.
	AutoCreateTopics bool
	// DefaultPartitions is how many partitions a topic gets whose maker does not say,
	// Kafka's num.partitions: 1 by default.
	DefaultPartitions int
	// ClampReplicationFactor gives a topic as many replicas as there are nodes where its
	// maker asks for more, as tools made for three nodes do. By default that is refused,
	// as in Kafka.
	ClampReplicationFactor bool

	// RequestBytesMax bounds a request: 100 MiB, Kafka's socket.request.max.bytes.
	// EarlyRequestBytesMax bounds it while the client is not known: 64 KiB.
	RequestBytesMax, EarlyRequestBytesMax int
	// RequestMemoryMax bounds the requests that are held at one time: 256 MiB; at least
	// RequestBytesMax. While it is used up nothing is read.
	RequestMemoryMax int64
	// FetchBytesMax bounds the records of one answer to a fetch: 55 MiB, Kafka's
	// fetch.max.bytes. A larger batch is sent nevertheless.
	FetchBytesMax int
	// FetchMemoryMax bounds the records that are being sent at one time: 256 MiB. While
	// it is used up fetches wait.
	FetchMemoryMax int64
	// ConnectionsMax bounds the connections: 10,000. Further ones are closed.
	ConnectionsMax int
	// PipelineMax bounds the requests of a connection that wait for their answer: 64.
	PipelineMax int
	// IdleTimeout ends connections that ask nothing: 10 min, Kafka's
	// connections.max.idle.ms. ReadTimeout ends those that do not finish a request that
	// they began, and WriteTimeout those that do not take an answer: 30 s each.
	IdleTimeout, ReadTimeout, WriteTimeout time.Duration
	// AuthTimeout ends connections that have not proved who they are: 30 s.
	AuthTimeout time.Duration

	// Authorize makes the access rules count: what no rule allows is refused. Default:
	// everybody may do everything.
	Authorize bool
	// SuperUsers are principals, such as "User:admin", who may do everything.
	SuperUsers []string
}

// Listener is one address.
type Listener struct {
	// Name is how nodes tell listeners apart: clients of one are told the addresses of
	// the same one of other nodes. Default "CLIENT".
	Name string
	// Address is what it is bound to, host:port.
	Address string
	// Advertise is what clients are told, host:port. Default: what it is bound to, or,
	// where that is all addresses, the machine's name. Port 0: that which it is bound to.
	Advertise string
	// TLS, unless nil, encrypts. Its certificates may change, by GetConfigForClient.
	TLS *tls.Config
	// SASL are the mechanisms by which clients prove who they are: PLAIN,
	// SCRAM-SHA-256, SCRAM-SHA-512. Default none: anonymous, or by certificate.
	SASL []string
}

// Defaults and bounds of Options.
const (
	defaultListenerName         = "CLIENT"
	defaultPartitions           = 1
	defaultRequestBytesMax      = 100 << 20
	defaultEarlyRequestBytesMax = 64 << 10
	defaultRequestMemoryMax     = 256 << 20
	defaultFetchBytesMax        = 55 << 20
	defaultFetchMemoryMax       = 256 << 20
	defaultConnectionsMax       = 10_000
	defaultPipelineMax          = 64
	defaultIdleTimeout          = 10 * time.Minute
	defaultIOTimeout            = 30 * time.Second
	minRequestBytesMax          = 1 << 10
)

// EnsureDefaults fills in what is zero.
func (o *Options) EnsureDefaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	for i := range o.Listeners {
		set(&o.Listeners[i].Name, defaultListenerName)
	}
	set(&o.DefaultPartitions, defaultPartitions)
	set(&o.RequestBytesMax, defaultRequestBytesMax)
	set(&o.EarlyRequestBytesMax, min(defaultEarlyRequestBytesMax, o.RequestBytesMax))
	set(&o.RequestMemoryMax, max(defaultRequestMemoryMax, int64(o.RequestBytesMax)))
	set(&o.FetchBytesMax, defaultFetchBytesMax)
	set(&o.FetchMemoryMax, defaultFetchMemoryMax)
	set(&o.ConnectionsMax, defaultConnectionsMax)
	set(&o.PipelineMax, defaultPipelineMax)
	set(&o.IdleTimeout, defaultIdleTimeout)
	set(&o.ReadTimeout, defaultIOTimeout)
	set(&o.WriteTimeout, defaultIOTimeout)
	set(&o.AuthTimeout, defaultIOTimeout)
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate tells what is wrong with options whose defaults are filled in.
func (o *Options) Validate() error {
	if o.Broker == nil {
		return fmt.Errorf("kafka: Options.Broker is nil: give the node to serve")
	}
	if len(o.Listeners) == 0 {
		return fmt.Errorf("kafka: Options.Listeners is empty: give an address at least")
	}
	names := map[string]bool{}
	for i := range o.Listeners {
		l := &o.Listeners[i]
		if names[l.Name] {
			return fmt.Errorf("kafka: two listeners are named %q: give each its own name", l.Name)
		}
		names[l.Name] = true
		for what, address := range map[string]string{"Address": l.Address, "Advertise": l.Advertise} {
			if _, _, err := net.SplitHostPort(address); err != nil && (address != "" || what == "Address") {
				return fmt.Errorf("kafka: listener %s: %s is %q: give host:port: %w", l.Name, what, address, err)
			}
		}
	}
	switch {
	case o.RequestBytesMax < minRequestBytesMax:
		return fmt.Errorf("kafka: Options.RequestBytesMax is %d: it must be at least %d", o.RequestBytesMax, minRequestBytesMax)
	case o.RequestMemoryMax < int64(o.RequestBytesMax):
		return fmt.Errorf("kafka: Options.RequestMemoryMax, %d, is below RequestBytesMax, %d", o.RequestMemoryMax, o.RequestBytesMax)
	case o.PipelineMax < 1 || o.ConnectionsMax < 1 || o.FetchBytesMax < 1 || o.FetchMemoryMax < 1 || o.DefaultPartitions < 1:
		return fmt.Errorf("kafka: a bound of Options is negative: give one above 0, or 0 for the default")
	}
	return nil
}
