package events

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"sync"
	"time"
)

var ids struct {
	mu   sync.Mutex
	last int64
}

// NewID returns a UUIDv7 (RFC 9562, section 5.7). Within the process each is
// greater than the one before, also within one millisecond and when the clock
// steps back: the 12 bits after the milliseconds hold the fraction of the
// millisecond (section 6.2, method 3).
func NewID() string {
	now := time.Now().UnixNano()
	const perMilli = int64(time.Millisecond)
	stamp := now/perMilli<<12 | now%perMilli<<12/perMilli
	ids.mu.Lock()
	stamp = max(stamp, ids.last+1)
	ids.last = stamp
	ids.mu.Unlock()

	var u [16]byte
	_, _ = rand.Read(u[8:]) // never fails
	binary.BigEndian.PutUint64(u[:8], uint64(stamp>>12)<<16|0x7000|uint64(stamp&0xfff))
	u[8] = u[8]&0x3f | 0x80

	var text [36]byte
	hex.Encode(text[0:8], u[0:4])
	hex.Encode(text[9:13], u[4:6])
	hex.Encode(text[14:18], u[6:8])
	hex.Encode(text[19:23], u[8:10])
	hex.Encode(text[24:36], u[10:16])
	for _, i := range []int{8, 13, 18, 23} {
		text[i] = '-'
	}
	return string(text[:])
}
