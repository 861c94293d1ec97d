package lane

import (
	"net"

	"golang.org/x/sys/unix"
)

// limitSilence makes the system end a TCP connection whose bytes aren't acknowledged for so long: a write or
// read then fails, and the stream is dialled again. It is no judgement of the peer, only of the connection.
func limitSilence(conn net.Conn) {
	if outer, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = outer.NetConn()
	}
	socket, ok := conn.(*net.TCPConn)
	if !ok {
		return
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silence.Milliseconds()))
	})
}
