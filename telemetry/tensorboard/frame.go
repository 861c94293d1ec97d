package tensorboard

import (
	"encoding/binary"
	"hash/crc32"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// masked returns the checksum of a TFRecord: a CRC-32C that is rotated and offset, so that checksums of data which
// contain checksums stay distinct.
func masked(data []byte) uint32 {
	sum := crc32.Checksum(data, castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// appendFrame appends a TFRecord: the length, its checksum, the data, their checksum.
func appendFrame(b, data []byte) []byte {
	length := binary.LittleEndian.AppendUint64(nil, uint64(len(data)))
	b = append(b, length...)
	b = binary.LittleEndian.AppendUint32(b, masked(length))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, masked(data))
}
