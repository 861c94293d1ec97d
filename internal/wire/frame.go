package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"google.golang.org/protobuf/proto"
)

// ErrFrame: the bytes on a stream are not a valid frame, or the frame is too long.
var ErrFrame = errors.New("malformed frame")

// WriteFrame writes the length of a message, as four bytes little-endian, and then the message. limit bounds the length
// in bytes.
func WriteFrame(w io.Writer, m proto.Message, limit int) error {
	b, err := proto.MarshalOptions{}.MarshalAppend(make([]byte, 4, 256), m)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	if len(b)-4 > limit {
		return fmt.Errorf("%w: %d bytes of %s; the limit is %d", ErrFrame, len(b)-4, m.ProtoReflect().Descriptor().Name(), limit)
	}
	binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	_, err = w.Write(b)
	return err
}

// ReadFrame reads a message from WriteFrame. It allocates nothing for a message that is longer
// than limit bytes. At the end of the stream it returns io.EOF.
func ReadFrame(r io.Reader, m proto.Message, limit int) error {
	var prefix [4]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return err
	}
	n := binary.LittleEndian.Uint32(prefix[:])
	if uint64(n) > uint64(limit) {
		return fmt.Errorf("%w: its length is %d bytes; the limit is %d", ErrFrame, n, limit)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(r, b); err != nil {
		return fmt.Errorf("%w: read its %d bytes: %w", ErrFrame, n, noEOF(err))
	}
	if err := proto.Unmarshal(b, m); err != nil {
		return fmt.Errorf("%w: %w", ErrFrame, err)
	}
	return nil
}

// noEOF distinguishes an end within a frame from one between frames.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
