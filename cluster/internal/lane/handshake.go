package lane

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
)

// The dialing side begins with a hello, and the other side answers with a welcome. Both have a fixed size.
const (
	helloBytes   = 144
	welcomeBytes = 32
	nonceBytes   = 16
	offerBytes   = 64 // limit for the name of the socket that offers shared memory

	helloCRCAt   = helloBytes - checksumBytes
	welcomeCRCAt = welcomeBytes - checksumBytes
)

const (
	flagChecksum uint16 = 1 << iota // frames of this stream carry checksums
	flagOffer                       // hello: there is a shared region; welcome: it is mapped
)

// hello says which process opens a stream, to which process, and which of its streams it is.
type hello struct {
	flags   uint16
	from    ID
	to      ID
	session uint64 // grows when the sender restarts its numbering for this receiver
	stream  uint8
	streams uint8
	nonce   [nonceBytes]byte // proves to the socket's owner that the receiver of this hello connects
	offer   string           // name of the socket that passes the shared region
}

func (h *hello) append(to []byte) []byte {
	start := len(to)
	to = binary.LittleEndian.AppendUint32(to, frameMagic)
	to = append(to, frameVersion, kindHello)
	to = binary.LittleEndian.AppendUint16(to, h.flags)
	to = append(to, h.from[:]...)
	to = append(to, h.to[:]...)
	to = binary.LittleEndian.AppendUint64(to, h.session)
	to = append(to, h.stream, h.streams, byte(len(h.offer)), 0)
	to = binary.LittleEndian.AppendUint32(to, LimitPiece)
	to = binary.LittleEndian.AppendUint32(to, 0) // reserved
	to = append(to, h.nonce[:]...)
	to = append(to, h.offer...)
	to = append(to, make([]byte, helloCRCAt-(len(to)-start))...)
	return binary.LittleEndian.AppendUint32(to, crc32.Checksum(to[start:], castagnoli))
}

// checkHandshake checks the beginning and the checksum of a hello or a welcome.
func checkHandshake(b []byte, kind uint8) error {
	if magic := binary.LittleEndian.Uint32(b); magic != frameMagic {
		return fmt.Errorf("%w: the handshake begins with %#08x, not %#08x", errFrame, magic, uint32(frameMagic))
	}
	if b[4] != frameVersion {
		return fmt.Errorf("%w: the handshake's protocol version is %d, this process speaks %d", errFrame, b[4], frameVersion)
	}
	if b[5] != kind {
		return fmt.Errorf("%w: the frame's kind is %d, not %d as in a handshake", errFrame, b[5], kind)
	}
	end := len(b) - checksumBytes
	if sum, want := crc32.Checksum(b[:end], castagnoli), binary.LittleEndian.Uint32(b[end:]); sum != want {
		return fmt.Errorf("%w: the checksum of the handshake is %08x, not %08x", errFrame, sum, want)
	}
	return nil
}

func (h *hello) parse(b []byte) error {
	if err := checkHandshake(b, kindHello); err != nil {
		return err
	}
	h.flags = binary.LittleEndian.Uint16(b[6:])
	copy(h.from[:], b[8:])
	copy(h.to[:], b[24:])
	h.session = binary.LittleEndian.Uint64(b[40:])
	h.stream, h.streams = b[48], b[49]
	offer := int(b[50])
	piece := binary.LittleEndian.Uint32(b[52:])
	copy(h.nonce[:], b[60:])
	switch {
	case h.flags&^(flagChecksum|flagOffer) != 0:
		return fmt.Errorf("%w: the handshake has unknown flags %#x", errFrame, h.flags)
	case h.session == 0:
		return fmt.Errorf("%w: the handshake has session 0", errFrame)
	case h.streams == 0 || h.streams > LimitStreams || h.stream >= h.streams:
		return fmt.Errorf("%w: stream %d of %d; the limit is %d streams", errFrame, h.stream, h.streams, LimitStreams)
	case piece != LimitPiece:
		return fmt.Errorf("%w: the peer's pieces have %d bytes, those of this process %d", errFrame, piece, LimitPiece)
	case offer > offerBytes:
		return fmt.Errorf("%w: the name of the socket has %d bytes; the limit is %d", errFrame, offer, offerBytes)
	}
	h.offer = string(b[76 : 76+offer])
	return nil
}

// refusal is why a hello was refused.
type refusal uint16

const (
	accepted refusal = iota
	refusedOther
	refusedSession
	refusedFull
	refusedClosed
	refusedForeign
)

func (r refusal) String() string {
	switch r {
	case accepted:
		return "accepted"
	case refusedOther:
		return "another process answers at this address"
	case refusedSession:
		return "the peer has ended its session with this process"
	case refusedFull:
		return "the peer has too many peers"
	case refusedClosed:
		return "the peer is closing"
	case refusedForeign:
		return "the peer does not know this incarnation of the process"
	}
	return fmt.Sprintf("refusal %d", uint16(r))
}

// welcome answers a hello.
type welcome struct {
	flags  uint16
	self   ID
	answer refusal
}

func (w *welcome) append(to []byte) []byte {
	start := len(to)
	to = binary.LittleEndian.AppendUint32(to, frameMagic)
	to = append(to, frameVersion, kindWelcome)
	to = binary.LittleEndian.AppendUint16(to, w.flags)
	to = append(to, w.self[:]...)
	to = binary.LittleEndian.AppendUint16(to, uint16(w.answer))
	to = binary.LittleEndian.AppendUint16(to, 0) // reserved
	return binary.LittleEndian.AppendUint32(to, crc32.Checksum(to[start:], castagnoli))
}

func (w *welcome) parse(b []byte) error {
	if err := checkHandshake(b, kindWelcome); err != nil {
		return err
	}
	w.flags = binary.LittleEndian.Uint16(b[6:])
	copy(w.self[:], b[8:])
	w.answer = refusal(binary.LittleEndian.Uint16(b[24:]))
	return nil
}

func readHello(r io.Reader) (h hello, err error) {
	var b [helloBytes]byte
	if _, err = io.ReadFull(r, b[:]); err != nil {
		return h, fmt.Errorf("read the handshake: %w", err)
	}
	return h, h.parse(b[:])
}

func readWelcome(r io.Reader) (w welcome, err error) {
	var b [welcomeBytes]byte
	if _, err = io.ReadFull(r, b[:]); err != nil {
		return w, fmt.Errorf("read the answer to the handshake: %w", err)
	}
	return w, w.parse(b[:])
}
