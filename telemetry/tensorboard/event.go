package tensorboard

import (
	"math"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of TensorFlow's event.proto, summary.proto, tensor.proto and tensor_shape.proto.
const (
	eventWallTime    = 1
	eventStep        = 2
	eventFileVersion = 3
	eventSummary     = 5
	eventSessionLog  = 7

	sessionStatus = 1
	sessionStart  = 1 // of the status

	summaryValue  = 1
	valueTag      = 1
	valueSimple   = 2
	valueTensor   = 8
	valueMetadata = 9

	metadataPlugin = 1
	metadataClass  = 4
	classTensor    = 2 // of the class
	pluginName     = 1

	tensorType   = 1
	typeString   = 7 // of the type
	tensorShape  = 2
	tensorString = 8
	shapeDim     = 2
	dimSize      = 1
)

// fileVersion is the version in the first event of a file.
const fileVersion = "brain.Event:2"

// scalar is a value under a tag.
type scalar struct {
	tag   string
	value float32
}

// appendEvent appends an event's time and step. The caller appends its content.
func appendEvent(b []byte, at time.Time, step int) []byte {
	b = protowire.AppendTag(b, eventWallTime, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, math.Float64bits(float64(at.Unix())+float64(at.Nanosecond())/1e9))
	if step != 0 {
		b = protowire.AppendTag(b, eventStep, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(step))
	}
	return b
}

func appendVersion(b []byte, at time.Time) []byte {
	return appendText(appendEvent(b, at, 0), eventFileVersion, fileVersion)
}

func appendStart(b []byte, at time.Time, step int) []byte {
	status := protowire.AppendVarint(protowire.AppendTag(nil, sessionStatus, protowire.VarintType), sessionStart)
	return appendMessage(appendEvent(b, at, step), eventSessionLog, status)
}

func appendScalars(b []byte, at time.Time, step int, scalars []scalar) []byte {
	var summary, value []byte
	for _, s := range scalars {
		value = appendText(value[:0], valueTag, s.tag)
		value = protowire.AppendTag(value, valueSimple, protowire.Fixed32Type)
		value = protowire.AppendFixed32(value, math.Float32bits(s.value))
		summary = appendMessage(summary, summaryValue, value)
	}
	return appendMessage(appendEvent(b, at, step), eventSummary, summary)
}

// appendNote appends a text in the form of TensorBoard's text plugin: a tensor of one string.
func appendNote(b []byte, at time.Time, step int, tag, text string) []byte {
	dim := protowire.AppendVarint(protowire.AppendTag(nil, dimSize, protowire.VarintType), 1)
	tensor := protowire.AppendVarint(protowire.AppendTag(nil, tensorType, protowire.VarintType), typeString)
	tensor = appendMessage(tensor, tensorShape, appendMessage(nil, shapeDim, dim))
	tensor = appendMessage(tensor, tensorString, []byte(text))
	metadata := appendMessage(nil, metadataPlugin, appendText(nil, pluginName, "text"))
	metadata = protowire.AppendVarint(protowire.AppendTag(metadata, metadataClass, protowire.VarintType), classTensor)
	value := appendText(nil, valueTag, tag)
	value = appendMessage(value, valueTensor, tensor)
	value = appendMessage(value, valueMetadata, metadata)
	return appendMessage(appendEvent(b, at, step), eventSummary, appendMessage(nil, summaryValue, value))
}

func appendMessage(b []byte, field protowire.Number, message []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, field, protowire.BytesType), message)
}

func appendText(b []byte, field protowire.Number, text string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), strings.ToValidUTF8(text, "\uFFFD"))
}
