//go:build !linux

package lane

import (
	"errors"
	"net"
)

// region is the shared memory of one stream; this system has none.
type region struct{ kept keepers }

func (*region) close()               {}
func (*region) unmap()               {}
func (*region) take() (int, bool)    { return 0, false }
func (*region) fill(int, [][]byte)   {}
func (*region) slot(int, int) []byte { return nil }
func (*region) free(int)             {}
func (*region) slots() int           { return 0 }

type offer struct {
	name  string
	nonce [nonceBytes]byte
}

func newOffer(net.Conn) *offer            { return nil }
func (*offer) accepted() (*region, error) { return nil, errors.ErrUnsupported }
func (*offer) close()                     {}

func mapOffer(string, [nonceBytes]byte) (*region, error) { return nil, errors.ErrUnsupported }
