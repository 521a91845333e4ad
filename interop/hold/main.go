// Command hold passes connections on to a broker that may be away for a while: those
// that come meanwhile wait for it instead of being refused. What a client has open when the
// broker goes is cut.
//
//	go run ./hold -listen 127.0.0.1:9192 -broker 127.0.0.1:9092
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

// patience is how long a connection waits for the broker, and between attempts.
const (
	patience = 30 * time.Second
	pause    = 20 * time.Millisecond
)

func main() {
	listen := flag.String("listen", "127.0.0.1:9192", "`address` for clients")
	broker := flag.String("broker", "127.0.0.1:9092", "`address` of the broker")
	flag.Parse()
	if err := serve(*listen, *broker); err != nil {
		fmt.Fprintln(os.Stderr, "hold:", err)
		os.Exit(1)
	}
}

func serve(listen, broker string) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return fmt.Errorf("listen for clients: %w", err)
	}
	for {
		client, err := l.Accept()
		if err != nil {
			return fmt.Errorf("take a client: %w", err)
		}
		go pass(client.(*net.TCPConn), broker)
	}
}

// pass joins a client with the broker until one of them goes.
func pass(client *net.TCPConn, broker string) {
	defer client.Close()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(pause) {
		server, err := net.Dial("tcp", broker)
		if err != nil {
			continue
		}
		defer server.Close()
		done := make(chan struct{}, 2)
		each := func(to, from net.Conn) {
			// However it ends, the other direction ends too.
			_, _ = io.Copy(to, from)
			done <- struct{}{}
		}
		go each(server, client)
		go each(client, server)
		<-done
		return
	}
}
