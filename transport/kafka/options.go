package kafka

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"time"
)

// Options say how a server is. The zero value of a field means its default.
type Options struct {
	// Broker is the node behind it. Required.
	Broker Broker
	// Store keeps users and access rules. Required with SASL. Default: there are none,
	// and none can be made.
	Store Store
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
	// RequestMemoryMax bounds the requests that are held at one time: 128 MiB; at least
	// RequestBytesMax. While it is used up nothing is read.
	RequestMemoryMax int64
	// FetchBytesMax bounds the records of one answer to a fetch: 55 MiB, Kafka's
	// fetch.max.bytes. A larger batch is sent nevertheless.
	FetchBytesMax int
	// FetchMemoryMax bounds the records that are being sent at one time: 64 MiB. While
	// it is used up fetches wait.
	FetchMemoryMax int64
	// ConnectionsMax bounds the connections: 10,000. Further ones are closed.
	// ConnectionsPerHostMax bounds those from one address, Kafka's
	// max.connections.per.ip: half of ConnectionsMax.
	ConnectionsMax, ConnectionsPerHostMax int
	// PipelineMax bounds the requests of a connection that wait for their answer: 64.
	PipelineMax int
	// IdleTimeout ends connections that ask nothing and wait for no answer: 10 min,
	// Kafka's connections.max.idle.ms. ReadTimeout ends those that do not finish a
	// request that they began, and WriteTimeout those that do not take 256 KiB of
	// answers, or all of one that is shorter: 30 s each.
	IdleTimeout, ReadTimeout, WriteTimeout time.Duration
	// AuthTimeout ends connections that have not proved who they are: 30 s.
	AuthTimeout time.Duration
	// ReauthAfter is how long a client that proved by SASL who it is may go on before it
	// has to do it again, Kafka's connections.max.reauth.ms. Default 0: for ever.
	ReauthAfter time.Duration

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
	// Advertise is what clients are told, host:port. Default: Address, or, where that is
	// all addresses, the machine's name. Port 0: that which it is bound to.
	Advertise string
	// TLS, unless nil, encrypts. Its certificates may change, by GetConfigForClient. Where
	// it asks clients for certificates, a client is who its certificate says, unless it
	// proves by SASL to be somebody else.
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
	defaultRequestMemoryMax     = 128 << 20
	defaultFetchBytesMax        = 55 << 20
	defaultFetchMemoryMax       = 64 << 20
	defaultConnectionsMax       = 10_000
	defaultPipelineMax          = 64
	hostShare                   = 2  // of the connections, for one host
	earlyShare                  = 16 // of the memory of requests, for clients nobody knows
	largeShare                  = 4  // of the memory of requests, out of reach of large ones
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
	set(&o.ConnectionsPerHostMax, max(o.ConnectionsMax/hostShare, 1))
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
		if err := l.validateSASL(o); err != nil {
			return err
		}
		for what, address := range map[string]string{"Address": l.Address, "Advertise": l.Advertise} {
			if _, _, err := net.SplitHostPort(address); err != nil && (address != "" || what == "Address") {
				return fmt.Errorf("kafka: listener %s: %s is %q: give host:port: %w", l.Name, what, address, err)
			}
		}
	}
	return o.validateBounds()
}

// validateSASL looks at the mechanisms.
func (l *Listener) validateSASL(o *Options) error {
	for _, name := range l.SASL {
		if !slices.Contains(Mechanisms(), name) {
			return fmt.Errorf("kafka: listener %s: the SASL mechanism %q is not known: give some of %v", l.Name, name, Mechanisms())
		}
	}
	if len(l.SASL) > 0 && o.Store == nil {
		return fmt.Errorf("kafka: listener %s has SASL, and Options.Store is nil: give a store that has the users", l.Name)
	}
	return nil
}

func (o *Options) validateBounds() error {
	switch {
	case o.RequestBytesMax < minRequestBytesMax:
		return fmt.Errorf("kafka: Options.RequestBytesMax is %d: it must be at least %d", o.RequestBytesMax, minRequestBytesMax)
	case o.RequestMemoryMax < int64(o.RequestBytesMax):
		return fmt.Errorf("kafka: Options.RequestMemoryMax, %d, is below RequestBytesMax, %d", o.RequestMemoryMax, o.RequestBytesMax)
	case o.EarlyRequestBytesMax < minRequestBytesMax || o.EarlyRequestBytesMax > o.RequestBytesMax:
		return fmt.Errorf("kafka: Options.EarlyRequestBytesMax is %d: %d to RequestBytesMax, %d, are possible", o.EarlyRequestBytesMax, minRequestBytesMax, o.RequestBytesMax)
	case o.IdleTimeout < 0 || o.ReadTimeout < 0 || o.WriteTimeout < 0 || o.AuthTimeout < 0 || o.ReauthAfter < 0:
		return fmt.Errorf("kafka: a timeout of Options is negative: give one above 0, or 0 for the default")
	case o.PipelineMax < 1 || o.ConnectionsMax < 1 || o.ConnectionsPerHostMax < 1 || o.FetchBytesMax < 1 || o.FetchMemoryMax < 1 || o.DefaultPartitions < 1:
		return fmt.Errorf("kafka: a bound of Options is negative: give one above 0, or 0 for the default")
	}
	return nil
}
