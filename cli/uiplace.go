package cli

import (
	"crypto/sha256"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"strconv"
)

// ownUI is the value of --ui without an address: the folder's own port on loopback.
const ownUI = "auto"

// The ports of pages, below those that systems hand out.
const (
	firstPagePort = 20_000
	pagePorts     = 10_000
)

// pageAddress returns the loopback address of the page of a run's folder. It is the same at each start, so bookmarks stay
// valid. The token is not: another user of the host may listen on the port between two starts, and would learn it.
func pageAddress(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(strconv.Itoa(os.Getuid()) + "\x00" + abs))
	port := firstPagePort + int(binary.BigEndian.Uint32(sum[:])%pagePorts)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), nil
}
