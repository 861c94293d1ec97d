package transport

import (
	"fmt"
	"io"
	"strings"
)

// Without TLS a connection begins with what it speaks: the client preface of HTTP/2 for
// protoactor, or our magic word, the length of a protocol's name in a byte, and the name.
const (
	magic        = "TROUPE/1"
	http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
)

// A stream's listener answers with one byte, with TLS and without, so that Dial can say that
// it was refused and why.
const (
	answerAccepted    = 0
	answerProtocol    = 1
	answerCertificate = 2
	answerRole        = 3
	answerRevoked     = 4
	answerReplaced    = 5
)

var answers = map[byte]error{
	answerProtocol:    errProtocol,
	answerCertificate: errCertificate,
	answerRole:        ErrRole,
	answerRevoked:     ErrRevoked,
	answerReplaced:    ErrReplaced,
}

// readPreamble reads no further than the name. Where control, it has read as much of HTTP/2's
// preface as the magic word is long.
func readPreamble(r io.Reader) (protocol string, control bool, err error) {
	var first [len(magic)]byte
	if _, err := io.ReadFull(r, first[:]); err != nil {
		return "", false, fmt.Errorf("said nothing of what it speaks: %w", err)
	}
	switch {
	case string(first[:]) == http2Preface[:len(magic)]:
		return "", true, nil
	case string(first[:]) != magic:
		hint := ""
		if first[0] == 0x16 {
			hint = "; it speaks TLS, and this process listens without"
		}
		return "", false, fmt.Errorf("%w: began with %q%s", errPlain, first[:], hint)
	}
	var length [1]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return "", false, fmt.Errorf("a protocol's name was cut off: %w", err)
	}
	n := int(length[0])
	if n == 0 || n > LimitNameBytes {
		return "", false, fmt.Errorf("%w: a name of %d bytes; want 1 to %d", errProtocol, n, LimitNameBytes)
	}
	var name [LimitNameBytes]byte
	if _, err := io.ReadFull(r, name[:n]); err != nil {
		return "", false, fmt.Errorf("a protocol's name was cut off: %w", err)
	}
	return string(name[:n]), false, nil
}

func preamble(protocol string) []byte {
	return append(append([]byte(magic), byte(len(protocol))), protocol...)
}

// checkProtocol says whether a name can be a protocol's.
func checkProtocol(name string) error {
	switch {
	case len(name) == 0 || len(name) > LimitNameBytes:
		return fmt.Errorf("protocol %q: a name has 1 to %d bytes", name, LimitNameBytes)
	case name == alpnHTTP2 || name == ProtocolControl || strings.HasPrefix(name, "http/"):
		return fmt.Errorf("protocol %q: the name is taken", name)
	}
	return nil
}
