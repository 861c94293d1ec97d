package lane

import (
	"errors"
	"net"
	"os"
)

// abort closes a connection at once, even during a write: a TLS connection's Close may wait to send
// its close notification.
func abort(conn net.Conn) {
	if outer, ok := conn.(interface{ NetConn() net.Conn }); ok {
		_ = outer.NetConn().Close()
	}
	_ = conn.Close()
}

// vectored reports whether net.Buffers writes to conn with one system call.
func vectored(conn net.Conn) bool {
	switch conn.(type) {
	case *net.TCPConn, *net.UnixConn:
		return true
	}
	return false
}

// batchWriter gathers slices and writes them. It copies only short slices, and only for a connection
// without vectored writes.
type batchWriter struct {
	conn     net.Conn
	vectored bool
	list     [][]byte
	bytes    int
	sending  net.Buffers // consumed by a vectored write; a field, so that it isn't allocated each time
	short    []byte
}

func newBatchWriter(conn net.Conn) *batchWriter {
	w := &batchWriter{conn: conn, vectored: vectored(conn)}
	if !w.vectored {
		w.short = make([]byte, 0, writeBufferBytes)
	}
	return w
}

func (w *batchWriter) add(b []byte) {
	if len(b) > 0 {
		w.list = append(w.list, b)
		w.bytes += len(b)
	}
}

// flush writes the added slices and drops them.
func (w *batchWriter) flush() error {
	if w.bytes == 0 {
		return nil
	}
	var err error
	if w.vectored {
		w.sending = w.list
		_, err = w.sending.WriteTo(w.conn)
		w.sending = nil
	} else {
		err = w.writeEach()
	}
	clear(w.list)
	w.list, w.bytes = w.list[:0], 0
	return err
}

func (w *batchWriter) writeEach() error {
	for _, b := range w.list {
		if len(w.short)+len(b) <= cap(w.short) {
			w.short = append(w.short, b...)
			continue
		}
		if err := w.writeShort(); err != nil {
			return err
		}
		if len(b) <= cap(w.short)/2 {
			w.short = append(w.short, b...)
			continue
		}
		if _, err := w.conn.Write(b); err != nil {
			return err
		}
	}
	return w.writeShort()
}

func (w *batchWriter) writeShort() error {
	if len(w.short) == 0 {
		return nil
	}
	_, err := w.conn.Write(w.short)
	w.short = w.short[:0]
	return err
}

// errInterrupted: the read deadline was set to make the reader check for a cancelled message. The stream continues.
var errInterrupted = errors.New("lane: read interrupted")

// frameReader reads frames: short reads through a buffer, long ones directly into their destination.
type frameReader struct {
	conn   net.Conn
	idle   func() error // called before a wait
	try    *tryReader   // nil: can't know whether a read would wait
	buf    []byte
	lo, hi int // buf[lo:hi] is unread
}

func newFrameReader(conn net.Conn, idle func() error, sleepers *sleepers) *frameReader {
	return &frameReader{conn: conn, idle: idle, try: newTryReader(conn, idle, sleepers), buf: make([]byte, readBufferBytes)}
}

// some reads at least one byte into p, which must not be empty.
func (r *frameReader) some(p []byte) (int, error) {
	if r.lo == r.hi {
		if len(p) >= len(r.buf) {
			return r.read(p)
		}
		n, err := r.read(r.buf)
		r.lo, r.hi = 0, n
		if err != nil {
			return 0, err
		}
	}
	n := copy(p, r.buf[r.lo:r.hi])
	r.lo += n
	return n, nil
}

// read reads once from the connection. It returns either bytes or an error.
func (r *frameReader) read(p []byte) (int, error) {
	for {
		var n int
		var err error
		if r.try != nil {
			n, err = r.try.Read(p)
		} else if err = r.idle(); err == nil {
			n, err = r.conn.Read(p)
		}
		switch {
		case n > 0:
			return n, nil // the next read returns the error again
		case errors.Is(err, os.ErrDeadlineExceeded):
			return 0, errInterrupted
		case err != nil:
			return 0, err
		}
	}
}
