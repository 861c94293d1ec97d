package groups

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/cluster/internal/lane"
	"github.com/troupe-ml/troupe/internal/collective"
)

// Kinds of control messages.
const (
	kindHello byte = iota // a member is open, and wants kindHere as the answer
	kindHere              // the answer to kindHello
	kindNote              // a text from one member to another
	kindPing              // empty; its acknowledgment shows that the process is alive
	numKinds
)

// note is a control message from one member of a group to another.
type note struct {
	kind     byte
	name     string
	from, to int
	members  lane.ID // digest of the processes of all ranks
	text     []byte
}

var errNote = errors.New("invalid message between members of groups")

// noteVersion is the first byte.
const noteVersion = 1

func (n note) encode() []byte {
	b := []byte{noteVersion, n.kind}
	b = binary.LittleEndian.AppendUint16(b, uint16(len(n.name)))
	b = append(b, n.name...)
	b = binary.LittleEndian.AppendUint32(b, uint32(n.from))
	b = binary.LittleEndian.AppendUint32(b, uint32(n.to))
	b = append(b, n.members[:]...)
	return append(b, n.text...)
}

func decodeNote(b []byte) (n note, err error) {
	const fixed = 4 + 8 + len(lane.ID{})
	if len(b) < fixed || b[0] != noteVersion || b[1] >= numKinds {
		return n, fmt.Errorf("%w: %d bytes", errNote, len(b))
	}
	n.kind = b[1]
	length := int(binary.LittleEndian.Uint16(b[2:]))
	if length > LimitNameBytes || len(b) < fixed+length || len(b) > fixed+length+collective.LimitNoteBytes {
		return n, fmt.Errorf("%w: it has %d bytes, with a name of %d", errNote, len(b), length)
	}
	n.name = string(b[4:][:length])
	b = b[4+length:]
	n.from, n.to = int(binary.LittleEndian.Uint32(b)), int(binary.LittleEndian.Uint32(b[4:]))
	b = b[8+copy(n.members[:], b[8:]):]
	if n.from >= collective.LimitMembers || n.to >= collective.LimitMembers {
		return n, fmt.Errorf("%w: from rank %d to rank %d", errNote, n.from, n.to)
	}
	n.text = b
	return n, nil
}
