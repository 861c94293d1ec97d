package lane

import (
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// limitSilence makes the system end a TCP connection whose bytes aren't acknowledged for so long: a write or
// read then fails, and the stream is dialled again. It is no judgement of the peer, only of the connection.
func limitSilence(conn net.Conn) {
	raw := socketOf(conn)
	if raw == nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // one that is no TCP socket has no such option
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
	})
}

// tcpEstablished is the state of a connection that stands.
const tcpEstablished = 1

// unheard is for how long bytes have waited in a connection without the peer's system acknowledging any; 0: none
// waits, or the connection is of a kind that does not say. Not ok: it has ended. A process that takes nothing has a
// system that acknowledges still.
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

// socketOf is the socket of a connection; nil: it has none.
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
