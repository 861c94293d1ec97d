package lane

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// limitSilence makes the system end a TCP connection whose bytes are not acknowledged for silence. A read or
// write then fails, and the stream redials. This concerns only the connection: the peer does not count as failed.
func limitSilence(conn net.Conn) {
	raw := socketOf(conn)
	if raw == nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // only TCP sockets have this option
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
	})
}

// tcpEstablished is the state of an established connection.
const tcpEstablished = 1

// unheard returns how long bytes have waited in a connection without any acknowledgment from the peer's system; 0: no
// byte waits, or the connection's kind can't say. ok is false if the connection has ended. The system acknowledges even
// if the peer's process reads nothing.
func unheard(conn net.Conn) (quiet time.Duration, ok bool) {
	raw := socketOf(conn)
	if raw == nil {
		return 0, true
	}
	err := raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		if ok = err != nil || info.State == tcpEstablished; err == nil && info.Unacked > 0 {
			quiet = time.Duration(info.Last_ack_recv) * time.Millisecond
		}
	})
	return quiet, ok && err == nil
}

// socketOf returns the socket of a connection; nil: it has none.
func socketOf(conn net.Conn) syscall.RawConn {
	if outer, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = outer.NetConn()
	}
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}
