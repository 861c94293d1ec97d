package lane

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// A frame has a prefix of fixed size, and after it, depending on the kind:
//
//	data: the header, the length of each part (8 bytes), the piece's payload, and with checksums the payload's CRC-64/NVME (8 bytes)
//	skip: nothing. The message with this number was withdrawn and will never come
//	ack:  parts numbers (8 bytes each) of messages that arrived; all messages with numbers below seq arrived too
//
// All integers are little-endian.
const (
	frameMagic   = 0x4e414c54 // "TLAN"
	frameVersion = 2

	prefixBytes   = 76
	prefixCRCAt   = 72
	lenBytes      = 8
	checksumBytes = 4 // CRC-32C of prefix and header
	sumBytes      = 8 // CRC-64/NVME of a piece: three times as fast as CRC-32C on processors with wide carry-less multiplication
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
	flagShared                     // the payload is in a slot of the shared region, not in the frame

	flagsData = flagStriped | flagShared
)

// errFrame is wrapped by every error about bytes from a peer.
var errFrame = errors.New("lane: bad frame")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// prefix is the fixed part of a frame.
type prefix struct {
	kind        uint8
	flags       uint16
	seq         uint64
	group       ID
	total       uint64 // bytes of the message's payload
	offset      uint64 // of this piece within the payload
	length      uint64 // bytes of this piece
	headerBytes uint32
	parts       uint32 // in an ack: how many numbers follow
	slot        uint32 // in the shared region
}

// append appends the prefix, with checksum 0.
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

// parse parses and checks a prefix, so that every length is within its limit.
func (p *prefix) parse(b []byte) error {
	if magic := binary.LittleEndian.Uint32(b); magic != frameMagic {
		return fmt.Errorf("%w: it begins with %#08x, not %#08x", errFrame, magic, uint32(frameMagic))
	}
	if b[4] != frameVersion {
		return fmt.Errorf("%w: its protocol version is %d, this process speaks %d", errFrame, b[4], frameVersion)
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
		return fmt.Errorf("%w: the reserved field is %d, not 0", errFrame, reserved)
	}
	switch p.kind {
	case kindData:
		return p.checkData()
	case kindSkip:
		if *p != (prefix{kind: kindSkip, seq: p.seq}) {
			return fmt.Errorf("%w: a skip frame has more than a number", errFrame)
		}
		return nil
	case kindAck:
		if *p != (prefix{kind: kindAck, seq: p.seq, parts: p.parts}) {
			return fmt.Errorf("%w: an acknowledgment has more than numbers", errFrame)
		}
		if p.parts > limitAcks {
			return fmt.Errorf("%w: %d acknowledgments in a frame; the limit is %d", errFrame, p.parts, limitAcks)
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
		return fmt.Errorf("%w: the header has %d bytes; the limit is %d", errFrame, p.headerBytes, LimitHeaderBytes)
	case p.parts > LimitParts:
		return fmt.Errorf("%w: the message has %d parts; the limit is %d", errFrame, p.parts, LimitParts)
	case p.total > LimitPayloadBytes:
		return fmt.Errorf("%w: the payload has %d bytes; the limit is %d", errFrame, p.total, int64(LimitPayloadBytes))
	}
	if p.flags&flagStriped == 0 {
		if p.offset != 0 || p.length != p.total {
			return fmt.Errorf("%w: a message of one piece has a piece of %d bytes at offset %d of %d", errFrame, p.length, p.offset, p.total)
		}
		return nil
	}
	if meta := p.metaBytes(); meta > limitStripedMeta {
		return fmt.Errorf("%w: a message in pieces has %d bytes of header and lengths; the limit is %d", errFrame, meta, limitStripedMeta)
	}
	if p.total <= LimitPiece || p.offset >= p.total || p.offset%LimitPiece != 0 || p.length != min(LimitPiece, p.total-p.offset) {
		return fmt.Errorf("%w: a piece has %d bytes at offset %d of %d; pieces have %d bytes", errFrame, p.length, p.offset, p.total, LimitPiece)
	}
	return nil
}

// metaBytes returns the bytes of header and lengths after the prefix.
func (p *prefix) metaBytes() int {
	if p.kind == kindAck {
		return lenBytes * int(p.parts)
	}
	return int(p.headerBytes) + lenBytes*int(p.parts)
}

// pieces returns how many pieces the message has.
func (p *prefix) pieces() int {
	if p.flags&flagStriped == 0 {
		return 1
	}
	return int((p.total + LimitPiece - 1) / LimitPiece)
}

// sealFrame stores the checksum of a frame without its payload. frame begins with the prefix.
func sealFrame(frame []byte) {
	sum := crc32.Update(0, castagnoli, frame[:prefixCRCAt])
	sum = crc32.Update(sum, castagnoli, frame[prefixBytes:])
	binary.LittleEndian.PutUint32(frame[prefixCRCAt:], sum)
}

// checkFrame compares the checksum in the prefix with the one of prefix and meta.
func checkFrame(prefix, meta []byte) error {
	want := binary.LittleEndian.Uint32(prefix[prefixCRCAt:])
	sum := crc32.Update(0, castagnoli, prefix[:prefixCRCAt])
	if sum = crc32.Update(sum, castagnoli, meta); sum != want {
		return fmt.Errorf("%w: the checksum of prefix and header is %08x, not %08x", errFrame, sum, want)
	}
	return nil
}

// parseLens parses the lengths of the parts and checks that their sum is total.
func parseLens(lens []int, b []byte, total uint64) ([]int, error) {
	sum := uint64(0)
	for i := 0; i < len(b); i += lenBytes {
		n := binary.LittleEndian.Uint64(b[i:])
		if n > total-sum {
			return nil, fmt.Errorf("%w: part %d has %d bytes, but %d are left of a payload of %d", errFrame, i/lenBytes, n, total-sum, total)
		}
		sum += n
		lens = append(lens, int(n))
	}
	if sum != total {
		return nil, fmt.Errorf("%w: the parts have %d bytes in total, but the payload has %d", errFrame, sum, total)
	}
	return lens, nil
}

// gather appends to list the slices of parts with the n bytes from offset on.
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
