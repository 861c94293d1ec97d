package draw

import (
	"bufio"
	"math"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// The field numbers and enumeration values of Perfetto's trace format that this package writes. A trace is a list of
// packets, each a protobuf message.
const (
	tracePacket = 1

	packetTimestamp  = 8 // in nanoseconds
	packetSequence   = 10
	packetEvent      = 11
	packetDescriptor = 60

	descriptorUUID     = 1
	descriptorName     = 2
	descriptorProcess  = 3
	descriptorParent   = 5
	descriptorCounter  = 8
	descriptorOrdering = 11 // of the track's children
	descriptorRank     = 12 // among its siblings

	processPID  = 1
	processName = 6

	counterUnit = 3

	eventAnnotation = 4
	eventType       = 9
	eventTrack      = 11
	eventCategory   = 22
	eventName       = 23
	eventCounter    = 30
	eventFlow       = 47
	eventFlowEnd    = 48

	annotationInt    = 4
	annotationDouble = 5
	annotationString = 6
	annotationName   = 10

	orderedByRank = 3
	unitCount     = 2

	sliceBegin = 1
	sliceEnd   = 2
	counter    = 4
)

// field is a field of a protobuf message.
type field struct {
	number protowire.Number
	kind   protowire.Type
	value  uint64
	bytes  string
	fields []field
}

func integer(n protowire.Number, v uint64) field {
	return field{number: n, kind: protowire.VarintType, value: v}
}
func fixed(n protowire.Number, v uint64) field {
	return field{number: n, kind: protowire.Fixed64Type, value: v}
}
func double(n protowire.Number, v float64) field { return fixed(n, math.Float64bits(v)) }
func text(n protowire.Number, v string) field {
	return field{number: n, kind: protowire.BytesType, bytes: strings.ToValidUTF8(v, "\uFFFD")}
}
func nested(n protowire.Number, fields ...field) field {
	return field{number: n, kind: protowire.BytesType, fields: fields}
}

// size returns the bytes of the field after its tag and, for a message or a text, after its length.
func (f field) size() int {
	switch {
	case f.kind == protowire.VarintType:
		return protowire.SizeVarint(f.value)
	case f.kind == protowire.Fixed64Type:
		return 8
	case f.fields == nil:
		return len(f.bytes)
	}
	n := 0
	for _, in := range f.fields {
		size := in.size()
		if in.kind == protowire.BytesType {
			size = protowire.SizeBytes(size)
		}
		n += protowire.SizeTag(in.number) + size
	}
	return n
}

func (f field) appendTo(b []byte) []byte {
	b = protowire.AppendTag(b, f.number, f.kind)
	switch {
	case f.kind == protowire.VarintType:
		return protowire.AppendVarint(b, f.value)
	case f.kind == protowire.Fixed64Type:
		return protowire.AppendFixed64(b, f.value)
	case f.fields == nil:
		return protowire.AppendString(b, f.bytes)
	}
	b = protowire.AppendVarint(b, uint64(f.size()))
	for _, in := range f.fields {
		b = in.appendTo(b)
	}
	return b
}

// packets writes the packets of a trace.
type packets struct {
	out   *bufio.Writer
	inner []field // memory for the next one
}

func (p *packets) descriptor(fields []field) error {
	return p.packet(nested(packetDescriptor, fields...))
}

func (p *packets) event(at int64, kind, track uint64, fields ...field) error {
	p.inner = append(append(p.inner[:0], integer(eventType, kind), integer(eventTrack, track)), fields...)
	return p.packet(integer(packetTimestamp, uint64(at)), nested(packetEvent, p.inner...))
}

// packet writes a packet. All belong to one sequence, whose number is required.
func (p *packets) packet(fields ...field) error {
	b := nested(tracePacket, append(fields, integer(packetSequence, 1))...).appendTo(p.out.AvailableBuffer())
	_, err := p.out.Write(b)
	return err
}
