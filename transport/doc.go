// Package transport is how nodes reach each other. It moves bytes and says who sent them; what they mean is for the layers above.
//
// A [Transport] is the plug point: it listens and dials with the semantics of package net. [TCP] is plain, [MutualTLS] proves both sides
// by certificate, [MemoryNetwork] joins nodes of one process and injects faults. Users may bring another.
//
// A [Node] speaks to other nodes over a Transport, by node id; the address behind an id may change ([Node.SetAddress]). Each stream has
// connections of its own, made by the side that asks:
//
//   - Raft messages: [Node.OpenBatches] and [Options.OnBatch]. Opaque batches, delivered in order, one way. The connection ends with
//     the context it was made with. A full send queue fails, drops or waits, as the caller chose; it never grows.
//   - Requests: [Node.Call] and [Options.OnRequest]. Concurrent, each with an answer, a deadline and a cancel that travels.
//   - Pulls: [Node.Pull] and [Options.OnPull]. A stream of bytes of known length, from any offset on, throttled, sent with sendfile
//     where the transport is plain TCP and the source a file.
//   - Raw streams: [Node.OpenStream] and [Options.OnStream]. A connection to whatever node is at an address, of whatever cluster or none.
//     All that a node serves is thus reached at its one listening address, gossip included.
//
// A node may start before it belongs to a cluster ([Options.ClusterID] is zero). Then it makes and takes raw streams only, until
// [Node.SetCluster].
//
// # Guarantees
//
// Nothing of ours is parsed before the transport has authenticated the connection, raw streams included. The first thing on it is a handshake: magic, versions,
// cluster, sender, incarnation, receiver, kind of stream. Who fails it gets a reason ([RefusedError]) and a closed connection.
// Afterwards every frame carries a checksum of header and payload, seeded for this connection and direction, and a running number: a
// frame that is mutated, cut, replayed or from elsewhere closes the connection, is counted and reported ([Event]), and harms nothing
// else. The checksum finds accidents; against an attacker on the wire use MutualTLS. Without it the network must be trusted: whoever
// reaches the port can claim an id.
//
// The bytes of a pull are not checksummed here, since sendfile does not show them to us; whoever pulls verifies what came. Those of a raw
// stream are its user's altogether: there are no frames, no sums, no pings, and no word of a peer that fell silent but that of deadlines.
// Its peer's id is proved by the certificate or not at all: no cluster, incarnation or [Options.Admit] stands behind it, and it says
// nothing about the member of the cluster that has that id.
//
// A batch is delivered at most once and in order per connection; it may be lost, without a word, when the connection ends. A request
// whose Call fails with [ErrConnLost], a context's error or [ErrTimeout] may have run; one that fails with [ErrUnreachable],
// [ErrQueueFull] or [ErrBusy] has not.
//
// Every queue, frame, count and wait has a bound in [Options]. A length is checked before anything is allocated for it. Inbound payloads
// are charged to their connection and to the node; what does not fit is dropped (batches) or answered with ErrBusy (requests), so that
// no connection waits for another.
//
// # Duties of the caller
//
// OnBatch runs on the connection's own goroutine: while it runs, the sender's queue fills. OnRequest runs on a goroutine of its own and
// must return when its context ends. OnStream has a goroutine of its own, too, and must return when its connection is closed. Callbacks may use the Node but must not call Close, which waits for them.
//
// # Peer state
//
// A Node keeps one connection for requests to every peer it has an address for, dials again when it ends, and reports through
// [Options.OnPeerState]. [PeerState.Gone] tells a peer whose process is certainly not there (its connection was reset and the port then
// refused) from one that is only silent: an early election may follow the first, never the second.
package transport
