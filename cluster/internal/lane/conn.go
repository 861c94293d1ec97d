package lane

import (
	"errors"
	"net"
	"os"
)

// abort ends a connection at once, also one that is being written: a TLS connection's own Close may wait to
// say goodbye.
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

// batchWriter gathers slices and writes them. It never copies payload, but for short slices of a
// connection without vectored writes.
type batchWriter struct {
	conn     net.Conn
	vectored bool
	list     [][]byte
	bytes    int
	sending  net.Buffers // what a vectored write consumes; a field, so that it isn't allocated anew
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

// flush writes what was added and forgets it.
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

// errInterrupted: somebody set the read deadline to make the reader look around; nothing is lost.
var errInterrupted = errors.New("lane: read interrupted")

// frameReader reads frames: short reads through a buffer, long ones straight into their place.
type frameReader struct {
	conn   net.Conn
	idle   func() error // called before a wait
	try    *tryReader   // nil: no way to know whether a read waits
	buf    []byte
	lo, hi int // buf[lo:hi] is unread
}

func newFrameReader(conn net.Conn, idle func() error, sleepers *sleepers) *frameReader {
	return &frameReader{conn: conn, idle: idle, try: newTryReader(conn, idle, sleepers), buf: make([]byte, readBufferBytes)}
}

// some reads at least a byte into p, which isn't empty.
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

// read reads once from the connection. An error comes without bytes.
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
			return n, nil // an error comes again
		case errors.Is(err, os.ErrDeadlineExceeded):
			return 0, errInterrupted
		case err != nil:
			return 0, err
		}
	}
}
