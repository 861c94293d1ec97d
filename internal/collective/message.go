package collective

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
)

// phase says what a message brings.
type phase uint8

const (
	gives   phase = iota // a piece of what a member contributes
	results              // a piece of a slice that is ready
	ready                // nothing: the sender has begun the collective, and waits
	numPhases
)

const (
	messageVersion = 2
	headerBytes    = 52
)

// message is the header of one: it says all that members have to agree on.
type message struct {
	phase phase
	seq   uint64
	piece int
	sig   Signature
}

// errMessage: what came is no message of a group.
var errMessage = errors.New("not a message of a collective")

func (m message) encode() []byte {
	b := make([]byte, 0, headerBytes)
	b = append(b, messageVersion, byte(m.phase), byte(m.sig.what), byte(m.sig.how), byte(m.sig.dtype), byte(m.sig.rank), 0, 0)
	b = binary.LittleEndian.AppendUint64(b, m.seq)
	b = binary.LittleEndian.AppendUint32(b, uint32(m.piece))
	for _, d := range m.sig.dims {
		b = binary.LittleEndian.AppendUint32(b, uint32(d))
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(m.sig.dim))
	return binary.LittleEndian.AppendUint32(b, uint32(m.sig.root))
}

func decodeMessage(b []byte) (m message, err error) {
	if len(b) != headerBytes {
		return m, fmt.Errorf("%w: the header has %d bytes, want %d", errMessage, len(b), headerBytes)
	}
	if b[0] != messageVersion {
		return m, fmt.Errorf("%w: the version is %d, want %d: all members must run the same version", errMessage, b[0], messageVersion)
	}
	m.phase = phase(b[1])
	s := &m.sig
	s.what, s.how, s.dtype, s.rank = tensorops.Collective(b[2]), tensorops.Reduction(b[3]), tensorops.DType(b[4]), int8(b[5])
	m.seq = binary.LittleEndian.Uint64(b[8:])
	piece := binary.LittleEndian.Uint32(b[16:])
	for i := range s.dims {
		s.dims[i] = int32(binary.LittleEndian.Uint32(b[20+4*i:]))
		if s.dims[i] < 0 {
			return m, fmt.Errorf("%w: dimension %d is %d", errMessage, i, s.dims[i])
		}
	}
	s.dim, s.root = int32(binary.LittleEndian.Uint32(b[44:])), int32(binary.LittleEndian.Uint32(b[48:]))
	if m.phase >= numPhases || s.what > tensorops.Barrier || s.how > tensorops.Product || !s.dtype.Known() ||
		s.rank < 0 || s.rank > tensorops.MaxRank || s.dim < 0 || s.root < 0 || piece > 1<<30 {
		return m, fmt.Errorf("%w: %x", errMessage, b)
	}
	m.piece = int(piece)
	return m, nil
}

// Notes begin with what they are.
const (
	noteFailed   = 'f' // the group is over: a kind of error and its text
	noteLeft     = 'l' // the sender has left: the number below which it has brought everything, and why
	noteMismatch = 'm'
	noteGone     = 'g'
	noteOther    = 'o'
)

func failedNote(err error) []byte {
	kind := byte(noteOther)
	switch {
	case errors.Is(err, ErrMismatch):
		kind = noteMismatch
	case errors.Is(err, ErrLeft):
		kind = noteGone
	}
	return cut(append([]byte{noteFailed, kind}, err.Error()...))
}

func leftNote(brought uint64, cause error) []byte {
	b := binary.LittleEndian.AppendUint64([]byte{noteLeft}, brought)
	if cause != nil {
		b = append(b, cause.Error()...)
	}
	return cut(b)
}

func cut(note []byte) []byte { return note[:min(len(note), LimitNoteBytes)] }

// toldError is an error of another member's: its text, and what kind it is of.
type toldError struct {
	text string
	kind error
}

func (e *toldError) Error() string { return e.text }
func (e *toldError) Unwrap() error { return e.kind }
