package main

import (
	"strings"

	"github.com/billetlog/billet"
)

// options are all settings of the program.
type options struct {
	billet.Config
	// File is the YAML file.
	File string
	// HTTP is the address of metrics and health.
	HTTP string
	// Admin also takes changes there.
	Admin               bool
	LogLevel, LogFormat string
	// CertFile, KeyFile and CAFile are those of mutual TLS between nodes.
	CertFile, KeyFile, CAFile string
}

// defaults are what differs from the library's.
func defaults() *options {
	o := &options{HTTP: "127.0.0.1:9644", LogLevel: "info", LogFormat: "text"}
	o.Dir = "data"
	o.NodeID = 1
	o.Kafka.Addr = "127.0.0.1:9092"
	return o
}

// setting is a field that users set: by the flag of its name, by BILLET_ and that in
// capitals in the environment, and by the name in the file.
type setting struct {
	field string // of options
	name  string
	kind  string // what the value is, for -help
	doc   string
}

func (s *setting) variable() string {
	return "BILLET_" + strings.ToUpper(strings.ReplaceAll(s.name, "-", "_"))
}

// settings are all of them.
func settings() []setting {
	return []setting{
		{"File", "config", "FILE", "a YAML file with settings by these names"},
		{"Dir", "dir", "DIR", "the node's directory, made if it is not there (default data)"},
		{"NodeID", "id", "N", "the node's id, which the directory keeps (default 1)"},
		{"HTTP", "http", "ADDRESS", `where /metrics, /healthz and /readyz are served; "" for nowhere (default 127.0.0.1:9644)`},
		{"Admin", "admin", "", "also take changes of nodes and partitions there, if the address is one of this machine"},
		{"LogLevel", "log-level", "LEVEL", "debug, info, warn or error (default info)"},
		{"LogFormat", "log-format", "FORMAT", "text or json (default text)"},

		{"Cluster.Listen", "listen", "ADDRESS", "where other nodes reach this one; without it the node is alone"},
		{"Cluster.Advertise", "advertise", "ADDRESS", "what other nodes are told instead"},
		{"Cluster.Join", "join", "ADDRESS,...", "nodes of the cluster to join, or that lead to those of -bootstrap"},
		{"Cluster.Bootstrap", "bootstrap", "N,...", "the ids of the nodes that form a new cluster together"},
		{"Cluster.Name", "cluster-name", "NAME", "keeps clusters apart (default billet)"},
		{"Cluster.Rack", "rack", "NAME", "where the node stands: replicas are spread over racks"},
		{"Cluster.GossipKey", "gossip-key", "HEX", "encrypts gossip: 16, 24 or 32 bytes in hexadecimal, the same on all nodes"},
		{"CertFile", "cluster-cert-file", "FILE", "the node's certificate for mutual TLS between nodes; it names node-N"},
		{"KeyFile", "cluster-key-file", "FILE", "its key"},
		{"CAFile", "cluster-ca-file", "FILE", "the certificates that other nodes' must lead to"},
		{"Cluster.CatchupBytesPerSecond", "catchup-bytes-per-second", "BYTES", "bounds what is sent to replicas that are new or far behind (default: no bound)"},
		{"Cluster.ReplicaLagTimeMax", "replica-lag-time-max", "TIME", "after how long behind a replica is not in sync (default 10s)"},

		{"Kafka.Addr", "kafka", "ADDRESS", `where Kafka's clients connect; "" for nowhere (default 127.0.0.1:9092)`},
		{"Kafka.Advertise", "kafka-advertise", "ADDRESS", "what clients are told instead"},
		{"Kafka.TLS.CertFile", "kafka-cert-file", "FILE", "the certificate for clients; with it connections are encrypted"},
		{"Kafka.TLS.KeyFile", "kafka-key-file", "FILE", "its key"},
		{"Kafka.TLS.ClientCAFile", "kafka-client-ca-file", "FILE", "the certificates that clients' must lead to"},
		{"Kafka.SASL", "kafka-sasl", "MECHANISM,...", "how clients prove who they are: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"},
		{"Kafka.Listeners", "kafka-listeners", "YAML", "more listeners: [{name: OUTSIDE, addr: 0.0.0.0:9093, advertise: a.example:9093, sasl: [PLAIN], tls: {cert-file: F, key-file: F, client-ca-file: F}}]"},
		{"Kafka.AllowAnonymous", "kafka-allow-anonymous", "", "allow listeners that are open to everybody at addresses that others reach"},
		{"Kafka.Authorize", "kafka-authorize", "", "access rules count: what none allows is refused"},
		{"Kafka.SuperUsers", "kafka-super-users", "USER,...", "who may do everything, such as User:admin"},
		{"Kafka.AutoCreateTopics", "kafka-auto-create-topics", "", "topics are made when clients ask for them"},
		{"Kafka.DefaultPartitions", "kafka-default-partitions", "N", "partitions of topics whose makers do not say (default 1)"},
		{"Kafka.ClampReplicationFactor", "kafka-clamp-replication-factor", "", "topics get as many replicas as there are nodes where more are asked for"},
		{"Kafka.ConnectionsMax", "kafka-connections-max", "N", "connections at most (default 10000)"},
		{"Kafka.ConnectionsPerHostMax", "kafka-connections-per-host-max", "N", "connections from one address at most (default: half of all)"},
		{"Kafka.RequestBytesMax", "kafka-request-bytes-max", "BYTES", "bytes of a request at most (default 100MiB)"},
		{"Kafka.RequestMemoryMax", "kafka-request-memory-max", "BYTES", "memory of requests under way (default 128MiB)"},
		{"Kafka.FetchMemoryMax", "kafka-fetch-memory-max", "BYTES", "memory of records on their way to clients (default 64MiB)"},
		{"Kafka.IdleTimeout", "kafka-idle-timeout", "TIME", "ends connections that ask nothing (default 10m)"},
		{"Kafka.ReauthAfter", "kafka-reauth-after", "TIME", "after how long clients prove again who they are (default: never)"},

		{"Groups.OffsetsPartitions", "groups-offsets-partitions", "N", "partitions of __consumer_offsets when it is made (default 16)"},
		{"Groups.OffsetsRetention", "groups-offsets-retention", "TIME", "how long offsets are kept that nobody needs (default 168h)"},
		{"Groups.OffsetsCheckInterval", "groups-offsets-check-interval", "TIME", "how often they are looked through (default 10m)"},
		{"Groups.SessionTimeoutMin", "groups-session-timeout-min", "TIME", "the shortest session of a classic group's member (default 6s)"},
		{"Groups.SessionTimeoutMax", "groups-session-timeout-max", "TIME", "the longest session of a classic group's member (default 30m)"},
		{"Groups.InitialRebalanceDelay", "groups-initial-rebalance-delay", "TIME", "how long an empty classic group waits for more members; negative: not at all (default 3s)"},
		{"Groups.SessionTimeout", "groups-session-timeout", "TIME", "the session of a member of the newer protocol (default 45s)"},
		{"Groups.HeartbeatInterval", "groups-heartbeat-interval", "TIME", "how often such members send a heartbeat (default 5s)"},
		{"Groups.MembersMax", "groups-members-max", "N", "members of a group at most (default 5000)"},
		{"Groups.GroupsMax", "groups-max", "N", "groups of one partition at most (default 100000)"},

		{"TopicDefaults", "topic-defaults", "NAME=VALUE,...", "settings of topics that do not say otherwise, by Kafka's names"},
		{"JournalBytes", "journal-bytes", "BYTES", "size of the journal by which small records share a sync; negative: none (default 64MiB)"},
		{"DiskReserve", "disk-reserve", "BYTES", "bytes of the disk that are kept free; negative: none (default 64MiB)"},
		{"MaxInFlightBytes", "max-in-flight-bytes", "BYTES", "bytes that are being stored, for each partition (default 16MiB)"},
		{"ScrubBytesPerSecond", "scrub-bytes-per-second", "BYTES", "how fast files are read through for damage; negative: not at all (default 4MiB)"},
		{"RetentionCheckInterval", "retention-check-interval", "TIME", "how often segments to delete are looked for (default 30s)"},
		{"OpenTimeout", "open-timeout", "TIME", "how long the start waits for the cluster; negative: for ever (default 1m)"},
		{"CloseTimeout", "close-timeout", "TIME", "how long the end waits for work under way (default 30s)"},
	}
}

// inCode are the fields of options that only programs can set.
func inCode() []string {
	return []string{"Logger", "OnEvent", "Cluster.Transport", "Cluster.CheckIdentity"}
}
