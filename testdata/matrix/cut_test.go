package matrix

import (
	"bytes"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// cut says when the connection is lost.
type cut int32

const (
	never           cut = iota
	beforeTheMarker     // the server never gets what a delivery begins with
	beforeCommit        // the server never gets the COMMIT
	beforeTheReply      // the server commits, and nobody hears of it
)

// network is a way to a server on which a connection can get lost.
type network struct {
	addr string
	next atomic.Int32 // the cut at the next COMMIT, once

	mu     sync.Mutex
	server string // where it leads to
	live   map[net.Conn]bool
}

func newNetwork(t *testing.T, server string) *network {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	n := &network{addr: listener.Addr().String(), server: server, live: map[net.Conn]bool{}}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go n.carry(client)
		}
	}()
	return n
}

func (n *network) cutAt(c cut) { n.next.Store(int32(c)) }

// lead has it lead to another server from now on, and ends all connections.
func (n *network) lead(server string) {
	n.mu.Lock()
	n.server = server
	n.mu.Unlock()
	n.drop()
}

// drop ends all connections.
func (n *network) drop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for client := range n.live {
		_ = client.Close()
	}
	clear(n.live)
}

// carry passes a connection on until it ends, on either side or by a cut.
func (n *network) carry(client net.Conn) {
	n.mu.Lock()
	server, err := net.Dial("tcp", n.server) // locked, so that whoever leads elsewhere ends it
	if err != nil {
		n.mu.Unlock()
		_ = client.Close()
		return
	}
	n.live[client] = true
	n.mu.Unlock()
	var deaf atomic.Bool // the next reply does not arrive
	pass := func(to, from net.Conn, chunk func([]byte) bool) {
		defer client.Close()
		defer server.Close()
		buffer := make([]byte, 1<<16)
		for {
			k, err := from.Read(buffer)
			if err != nil || !chunk(buffer[:k]) {
				return
			}
			if _, err := to.Write(buffer[:k]); err != nil {
				return
			}
		}
	}
	go pass(client, server, func([]byte) bool { return !deaf.Load() })
	pass(server, client, func(chunk []byte) bool {
		if !bytes.Contains(bytes.ToUpper(chunk), []byte("COMMIT")) {
			return true
		}
		switch cut(n.next.Swap(int32(never))) {
		case beforeCommit:
			return false
		case beforeTheReply:
			deaf.Store(true)
		}
		return true
	})
}
