// Package secure makes TLS connections whose records go to the network many at a time.
//
// TLS has records of at most 16 KiB, and crypto/tls reads and writes each by a call of the system of its own, which the
// network then has as a packet of its own. Where messages are of megabytes, that costs as much as the encryption.
//
// It may not know what the connections are for, or who may open them.
package secure

import (
	"crypto/tls"
	"net"
	"sync"
)

const (
	recordBytes = 16 << 10 // the most that a record has of what is written
	aroundBytes = 22       // what a record of TLS 1.3 has beside it

	// batchBytes is how much goes to the system at once, and how much of what has come is taken at once.
	batchBytes = 8 * (recordBytes + aroundBytes)
)

// Conn is a TLS connection.
type Conn struct {
	*tls.Conn
	wire *wire
}

// Client is tls.Client.
func Client(raw net.Conn, config *tls.Config) *Conn {
	w := &wire{Conn: raw}
	return &Conn{tls.Client(w, config), w}
}

// Server is tls.Server.
func Server(raw net.Conn, config *tls.Config) *Conn {
	w := &wire{Conn: raw}
	return &Conn{tls.Server(w, config), w}
}

// NetConn is the connection below TLS, as it was given.
func (c *Conn) NetConn() net.Conn { return c.wire.Conn }

// Write writes p. When it returns without an error all of it has gone to the system.
func (c *Conn) Write(p []byte) (int, error) {
	if len(p) <= recordBytes {
		return c.Conn.Write(p)
	}
	c.wire.hold()
	n, err := c.Conn.Write(p)
	if flushed := c.wire.release(); err == nil && flushed != nil {
		return 0, flushed
	}
	return n, err
}

// wire is what TLS reads from and writes to.
type wire struct {
	net.Conn

	mu      sync.Mutex // of what is written
	holders int        // writes that go on, behind each of which what is kept is written
	kept    *[]byte    // records that are not written yet; nil: none
	err     error      // of the first write that failed: a record is missing then, and none may follow

	// of the one that reads
	buf    []byte // nil: not needed yet
	lo, hi int
}

// batches has room for records.
var batches = sync.Pool{New: func() any {
	b := make([]byte, 0, batchBytes)
	return &b
}}

func (w *wire) hold() {
	w.mu.Lock()
	w.holders++
	w.mu.Unlock()
}

func (w *wire) release() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holders--
	return w.flush()
}

// Write keeps p for as long as somebody holds and there is room.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	if w.kept != nil && len(*w.kept)+len(p) > batchBytes {
		if err := w.flush(); err != nil {
			return 0, err
		}
	}
	if w.holders == 0 || len(p) > batchBytes {
		if err := w.flush(); err != nil {
			return 0, err
		}
		n, err := w.Conn.Write(p)
		w.err = err
		return n, err
	}
	if w.kept == nil {
		w.kept = batches.Get().(*[]byte)
	}
	*w.kept = append(*w.kept, p...)
	return len(p), nil
}

// flush writes what is kept. mu is held.
func (w *wire) flush() error {
	if w.kept == nil {
		return w.err
	}
	if w.err == nil {
		_, w.err = w.Conn.Write(*w.kept)
	}
	*w.kept = (*w.kept)[:0]
	batches.Put(w.kept)
	w.kept = nil
	return w.err
}

// Read reads what has come. When it fills p there may be more, which is taken at once from then on.
func (w *wire) Read(p []byte) (int, error) {
	if w.lo == w.hi {
		if w.buf == nil || len(p) >= len(w.buf) {
			n, err := w.Conn.Read(p)
			if n == len(p) && n > recordBytes && w.buf == nil {
				w.buf = make([]byte, batchBytes)
			}
			return n, err
		}
		n, err := w.Conn.Read(w.buf)
		w.lo, w.hi = 0, n
		if n == 0 {
			return 0, err
		}
		// An error comes again.
	}
	n := copy(p, w.buf[w.lo:w.hi])
	w.lo += n
	return n, nil
}
