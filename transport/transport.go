package transport

import (
	"context"
	"crypto/x509"
	"net"
)

// Transport is the plug point: how bytes get from one node to another. Implementations are safe for concurrent use.
type Transport interface {
	// Listen takes connections at addr; the form of addr is the implementation's. Accept of the listener must not wait for a
	// handshake with one peer: see AuthenticatedConn. Closing the listener ends Accept and leaves accepted connections alone.
	Listen(addr string) (net.Listener, error)
	// Dial makes a connection, at the latest until ctx ends; afterwards ctx has no influence on it. When nobody listens at addr
	// the error must wrap syscall.ECONNREFUSED, and only then: peer states, and with them early elections, rest on it.
	// Connections honour deadlines, and Close on them ends blocked calls without waiting for the network.
	Dial(ctx context.Context, addr string) (net.Conn, error)
}

// AuthenticatedConn is a connection whose far side proves who it is before anything is read from it. A Node calls Authenticate first,
// on both sides.
type AuthenticatedConn interface {
	net.Conn
	// Authenticate completes the proof, until ctx ends. Further calls return the same. After an error the connection is useless.
	Authenticate(ctx context.Context) (Identity, error)
}

// Identity is who a connection's far side proved to be. The zero value is nobody: the transport does not authenticate.
type Identity struct {
	// Names are the certificate's names: DNS names, URIs, then the common name, without repetition.
	Names []string
	// Certificate is the verified leaf.
	Certificate *x509.Certificate
}

// Has tells whether name is one of the identity's names, byte for byte.
func (id Identity) Has(name string) bool {
	for _, n := range id.Names {
		if n == name {
			return true
		}
	}
	return false
}

// identityOf collects the names of a leaf.
func identityOf(leaf *x509.Certificate) Identity {
	id := Identity{Certificate: leaf}
	add := func(name string) {
		if name != "" && !id.Has(name) {
			id.Names = append(id.Names, name)
		}
	}
	for _, name := range leaf.DNSNames {
		add(name)
	}
	for _, uri := range leaf.URIs {
		add(uri.String())
	}
	add(leaf.Subject.CommonName)
	return id
}
