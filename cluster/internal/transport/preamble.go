package transport

import (
	"fmt"
	"io"
	"strings"
)

// Without TLS a connection begins with its protocol: HTTP/2's client preface for protoactor, or our
// magic word, one byte with the length of the protocol's name, and the name.
const (
	magic        = "TROUPE/1"
	http2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
)

// A stream's listener answers with one byte, with and without TLS, so that Dial can say whether and
// why it was refused.
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

// readPreamble reads up to the end of the name. If it returns control, it has read the beginning of
// HTTP/2's preface, as long as the magic word.
func readPreamble(r io.Reader) (protocol string, control bool, err error) {
	var first [len(magic)]byte
	if _, err := io.ReadFull(r, first[:]); err != nil {
		return "", false, fmt.Errorf("read the protocol: %w", err)
	}
	switch {
	case string(first[:]) == http2Preface[:len(magic)]:
		return "", true, nil
	case string(first[:]) != magic:
		hint := ""
		if first[0] == 0x16 {
			hint = "; it speaks TLS, but this process listens without TLS"
		}
		return "", false, fmt.Errorf("%w: it began with %q%s", errPlain, first[:], hint)
	}
	var length [1]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return "", false, fmt.Errorf("read the protocol's name: %w", err)
	}
	n := int(length[0])
	if n == 0 || n > LimitNameBytes {
		return "", false, fmt.Errorf("%w: its name has %d bytes; want 1 to %d", errProtocol, n, LimitNameBytes)
	}
	var name [LimitNameBytes]byte
	if _, err := io.ReadFull(r, name[:n]); err != nil {
		return "", false, fmt.Errorf("read the protocol's name: %w", err)
	}
	return string(name[:n]), false, nil
}

func preamble(protocol string) []byte {
	return append(append([]byte(magic), byte(len(protocol))), protocol...)
}

// checkProtocol returns an error if a protocol can't have a name.
func checkProtocol(name string) error {
	switch {
	case len(name) == 0 || len(name) > LimitNameBytes:
		return fmt.Errorf("protocol %q: the name must have 1 to %d bytes", name, LimitNameBytes)
	case name == alpnHTTP2 || name == ProtocolControl || strings.HasPrefix(name, "http/"):
		return fmt.Errorf("protocol %q: the name is reserved", name)
	}
	return nil
}
