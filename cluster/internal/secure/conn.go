// Package secure makes TLS connections that read and write many TLS records with one system call.
//
// A TLS record has at most 16 KiB, and crypto/tls reads and writes each with a separate system call, which the network
// then sends as a separate packet. For messages of megabytes that costs as much as the encryption.
//
// The package must never know the purpose of a connection, or who may open it.
package secure

import (
	"crypto/tls"
	"net"
	"sync"
)

const (
	recordBytes = 16 << 10 // the most payload bytes in a record
	aroundBytes = 22       // the other bytes of a TLS 1.3 record

	// batchBytes is the most that one system call writes or reads.
	batchBytes = 8 * (recordBytes + aroundBytes)
)

// Conn is a TLS connection.
type Conn struct {
	*tls.Conn
	wire *wire
}

// Client is like tls.Client.
func Client(raw net.Conn, config *tls.Config) *Conn {
	w := &wire{Conn: raw}
	return &Conn{tls.Client(w, config), w}
}

// Server is like tls.Server.
func Server(raw net.Conn, config *tls.Config) *Conn {
	w := &wire{Conn: raw}
	return &Conn{tls.Server(w, config), w}
}

// NetConn returns the connection below TLS that was given to Client or Server.
func (c *Conn) NetConn() net.Conn { return c.wire.Conn }

// Write writes p. When it returns without an error, all of p was passed to the system.
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

// wire is the connection that TLS reads from and writes to.
type wire struct {
	net.Conn

	mu      sync.Mutex // for writing
	holders int        // calls of Conn.Write in progress; each flushes at its end
	kept    *[]byte    // records that are not written yet; nil: none
	err     error      // of the first failed write: a record is missing, so none may follow

	// used only by the reader
	buf    []byte // nil: not needed yet
	lo, hi int
}

// batches is a pool of buffers for records.
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

// Write keeps p while there are holders and the buffer has room.
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

// flush writes the kept records. mu is held.
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

// Read reads from the connection. After a read that fills p it reads through a larger buffer, because more may be waiting.
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
		// The next read returns the error again.
	}
	n := copy(p, w.buf[w.lo:w.hi])
	w.lo += n
	return n, nil
}
