package netlab

import (
	"encoding/binary"
	"fmt"
)

// prefix has the first three bytes of every address; the fourth is the host's index + 1.
var prefix = [3]byte{10, 77, 0}

func address(host int) string {
	return fmt.Sprintf("%d.%d.%d.%d", prefix[0], prefix[1], prefix[2], host+1)
}

// destination returns the index of an IP packet's destination host. It returns false for packets that
// are not IPv4 and for addresses that no lab uses.
func destination(packet []byte) (host int, ok bool) {
	const headerBytes, at = 20, 16 // at is the offset of the destination
	if len(packet) < headerBytes || packet[0]>>4 != 4 || int(binary.BigEndian.Uint16(packet[2:])) != len(packet) {
		return 0, false
	}
	if [3]byte(packet[at:at+3]) != prefix || packet[at+3] == 0 || packet[at+3] > LimitHosts {
		return 0, false
	}
	return int(packet[at+3]) - 1, true
}
