// Package kafka serves Kafka's protocol: any Kafka client is a client of the node
// behind it, which it knows as a [Broker].
//
// A [Server] has listeners, each with an address that it is bound to and one that
// clients are told. Requests of a connection are answered in their order. They are
// carried out in that order too: a request waits for those before it, except that
// produce requests do not wait for one another, so that several of them share a sync
// of the disk.
//
// The table in api.go is the one list of requests: dispatch, ApiVersions and
// docs/kafka.md follow it. Each request has a file, named by its key. What is not in
// the table is not advertised; a request for it closes the connection, as Kafka does.
//
// # Who may do what
//
// A listener may ask clients to prove who they are, by SASL (PLAIN, SCRAM) or by
// certificates. Users and access rules are kept in a [Store]; Kafka's own requests make
// and list them, [SetUser] makes the first one. See [Options.Authorize].
//
// # Bounds
//
// Lengths are checked before anything is allocated for them. A frame is charged to the
// memory of the server before it is read: when that is used up connections wait, and
// no more is read from them. Every wait for a client ends. See [Options] for every bound.
//
// # Out of scope
//
// Transactions, share groups, quotas, delegation tokens, message formats before v2.
package kafka
