package lane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// A frame is a prefix of fixed size and what its kind has behind it:
//
//	data: header, the length of each part (8 bytes), the piece's payload, with checksums 8 bytes of CRC-64/NVME of the payload
//	skip: nothing. The message of this number was withdrawn and never comes
//	ack:  parts numbers (8 bytes) of messages that arrived; all numbers below seq did as well
//
// All integers are little-endian.
const (
	frameMagic   = 0x4e414c54 // "TLAN"
	frameVersion = 2

	prefixBytes   = 76
	prefixCRCAt   = 72
	lenBytes      = 8
	checksumBytes = 4 // CRC-32C, of prefix and header
	sumBytes      = 8 // CRC-64/NVME, of a piece: three times as fast where the processor has wide carry-less products
)

const (
	kindHello uint8 = iota + 1
	kindWelcome
	kindData
	kindSkip
	kindAck
)

const (
	flagStriped uint16 = 1 << iota // the message is cut into pieces of LimitPiece
	flagShared                     // the payload is in a slot of the shared region, not behind the frame

	flagsData = flagStriped | flagShared
)

// errFrame is what every error about the bytes of a peer wraps.
var errFrame = errors.New("lane: bad frame")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// prefix is the fixed part of a frame.
type prefix struct {
	kind        uint8
	flags       uint16
	seq         uint64
	group       ID
	total       uint64 // bytes of the message's payload
	offset      uint64 // of this piece in it
	length      uint64 // bytes of this piece
	headerBytes uint32
	parts       uint32 // of an ack: how many numbers follow
	slot        uint32 // in the shared region
}

// append writes the prefix, its checksum still 0.
func (p *prefix) append(to []byte) []byte {
	to = binary.LittleEndian.AppendUint32(to, frameMagic)
	to = append(to, frameVersion, p.kind)
	to = binary.LittleEndian.AppendUint16(to, p.flags)
	to = binary.LittleEndian.AppendUint64(to, p.seq)
	to = append(to, p.group[:]...)
	to = binary.LittleEndian.AppendUint64(to, p.total)
	to = binary.LittleEndian.AppendUint64(to, p.offset)
	to = binary.LittleEndian.AppendUint64(to, p.length)
	to = binary.LittleEndian.AppendUint32(to, p.headerBytes)
	to = binary.LittleEndian.AppendUint32(to, p.parts)
	to = binary.LittleEndian.AppendUint32(to, p.slot)
	to = binary.LittleEndian.AppendUint32(to, 0) // reserved
	return binary.LittleEndian.AppendUint32(to, 0)
}

// parse reads and checks a prefix. After it every length is within its limit.
func (p *prefix) parse(b []byte) error {
	if magic := binary.LittleEndian.Uint32(b); magic != frameMagic {
		return fmt.Errorf("%w: begins with %#08x, not %#08x", errFrame, magic, uint32(frameMagic))
	}
	if b[4] != frameVersion {
		return fmt.Errorf("%w: protocol version %d, this process speaks %d", errFrame, b[4], frameVersion)
	}
	p.kind = b[5]
	p.flags = binary.LittleEndian.Uint16(b[6:])
	p.seq = binary.LittleEndian.Uint64(b[8:])
	copy(p.group[:], b[16:])
	p.total = binary.LittleEndian.Uint64(b[32:])
	p.offset = binary.LittleEndian.Uint64(b[40:])
	p.length = binary.LittleEndian.Uint64(b[48:])
	p.headerBytes = binary.LittleEndian.Uint32(b[56:])
	p.parts = binary.LittleEndian.Uint32(b[60:])
	p.slot = binary.LittleEndian.Uint32(b[64:])
	if reserved := binary.LittleEndian.Uint32(b[68:]); reserved != 0 {
		return fmt.Errorf("%w: reserved field is %d, not 0", errFrame, reserved)
	}
	switch p.kind {
	case kindData:
		return p.checkData()
	case kindSkip:
		if *p != (prefix{kind: kindSkip, seq: p.seq}) {
			return fmt.Errorf("%w: more than a number in a withdrawn message", errFrame)
		}
		return nil
	case kindAck:
		if *p != (prefix{kind: kindAck, seq: p.seq, parts: p.parts}) {
			return fmt.Errorf("%w: more than numbers in acknowledgements", errFrame)
		}
		if p.parts > limitAcks {
			return fmt.Errorf("%w: %d acknowledgements in a frame, at most %d", errFrame, p.parts, limitAcks)
		}
		return nil
	}
	return fmt.Errorf("%w: unknown kind %d", errFrame, p.kind)
}

func (p *prefix) checkData() error {
	switch {
	case p.flags&^flagsData != 0:
		return fmt.Errorf("%w: unknown flags %#x", errFrame, p.flags)
	case p.headerBytes > LimitHeaderBytes:
		return fmt.Errorf("%w: header of %d bytes, at most %d", errFrame, p.headerBytes, LimitHeaderBytes)
	case p.parts > LimitParts:
		return fmt.Errorf("%w: %d parts, at most %d", errFrame, p.parts, LimitParts)
	case p.total > LimitPayloadBytes:
		return fmt.Errorf("%w: payload of %d bytes, at most %d", errFrame, p.total, int64(LimitPayloadBytes))
	}
	if p.flags&flagStriped == 0 {
		if p.offset != 0 || p.length != p.total {
			return fmt.Errorf("%w: piece of %d bytes at %d of %d in a message of one piece", errFrame, p.length, p.offset, p.total)
		}
		return nil
	}
	if meta := p.metaBytes(); meta > limitStripedMeta {
		return fmt.Errorf("%w: %d bytes of header and lengths in a message of pieces, at most %d", errFrame, meta, limitStripedMeta)
	}
	if p.total <= LimitPiece || p.offset >= p.total || p.offset%LimitPiece != 0 || p.length != min(LimitPiece, p.total-p.offset) {
		return fmt.Errorf("%w: piece of %d bytes at %d of %d, pieces have %d", errFrame, p.length, p.offset, p.total, LimitPiece)
	}
	return nil
}

// metaBytes is how much header and lengths take behind the prefix.
func (p *prefix) metaBytes() int {
	if p.kind == kindAck {
		return lenBytes * int(p.parts)
	}
	return int(p.headerBytes) + lenBytes*int(p.parts)
}

// pieces is how many pieces the message has.
func (p *prefix) pieces() int {
	if p.flags&flagStriped == 0 {
		return 1
	}
	return int((p.total + LimitPiece - 1) / LimitPiece)
}

// sealFrame stores the checksum of a prefix and what follows it up to the payload. frame begins with the prefix.
func sealFrame(frame []byte) {
	sum := crc32.Update(0, castagnoli, frame[:prefixCRCAt])
	sum = crc32.Update(sum, castagnoli, frame[prefixBytes:])
	binary.LittleEndian.PutUint32(frame[prefixCRCAt:], sum)
}

// checkFrame compares the checksum in prefix with that of prefix and meta.
func checkFrame(prefix, meta []byte) error {
	want := binary.LittleEndian.Uint32(prefix[prefixCRCAt:])
	sum := crc32.Update(0, castagnoli, prefix[:prefixCRCAt])
	if sum = crc32.Update(sum, castagnoli, meta); sum != want {
		return fmt.Errorf("%w: checksum of prefix and header is %08x, not %08x", errFrame, sum, want)
	}
	return nil
}

// parseLens reads the lengths of the parts and checks that they sum up to total.
func parseLens(lens []int, b []byte, total uint64) ([]int, error) {
	sum := uint64(0)
	for i := 0; i < len(b); i += lenBytes {
		n := binary.LittleEndian.Uint64(b[i:])
		if n > total-sum {
			return nil, fmt.Errorf("%w: part %d of %d bytes, %d are left of a payload of %d", errFrame, i/lenBytes, n, total-sum, total)
		}
		sum += n
		lens = append(lens, int(n))
	}
	if sum != total {
		return nil, fmt.Errorf("%w: parts of %d bytes in a payload of %d", errFrame, sum, total)
	}
	return lens, nil
}

// gather appends to list the slices of parts that hold the n bytes from offset on.
func gather(list, parts [][]byte, offset, n int) [][]byte {
	for _, part := range parts {
		if n == 0 {
			break
		}
		if offset >= len(part) {
			offset -= len(part)
			continue
		}
		part = part[offset:]
		offset = 0
		part = part[:min(n, len(part))]
		n -= len(part)
		list = append(list, part)
	}
	return list
}
