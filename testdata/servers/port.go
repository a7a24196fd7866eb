package servers

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// freePort returns a TCP port of 127.0.0.1 that nobody listens on.
//
// It lies below the range from which systems pick the local ports of outgoing
// connections. While a server of ours is down, nobody can be given its port by
// chance, not even a client that is busy reconnecting to it.
func freePort() (int, error) {
	const lowest, highest, attempts = 12000, 31999, 100
	var errs []error
	for range attempts {
		port := lowest + rand.IntN(highest-lowest+1)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		return port, l.Close()
	}
	return 0, fmt.Errorf("no free port on 127.0.0.1 in %d attempts: %w", attempts, errors.Join(errs[len(errs)-1:]...))
}
