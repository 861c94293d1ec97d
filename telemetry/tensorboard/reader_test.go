package tensorboard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"os"

	"google.golang.org/protobuf/encoding/protowire"
)

// event is one as a reader sees it.
type event struct {
	at      float64
	step    int64
	version string
	start   bool
	scalars map[string]float32
	texts   map[string]string
}

// readEvents reads an event file, without a word of the code that writes it.
func readEvents(path string) (all []event, err error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	sum := func(b []byte) uint32 {
		c := crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli))
		return (c>>15 | c<<17) + 0xa282ead8
	}
	for len(data) > 0 {
		if len(data) < 16 {
			return nil, errors.New("cut short")
		}
		n := binary.LittleEndian.Uint64(data)
		if sum(data[:8]) != binary.LittleEndian.Uint32(data[8:]) {
			return nil, errors.New("the length's checksum is wrong")
		}
		if n > uint64(len(data)-16) {
			return nil, errors.New("cut short")
		}
		body := data[12 : 12+n]
		if sum(body) != binary.LittleEndian.Uint32(data[12+n:]) {
			return nil, errors.New("the data's checksum is wrong")
		}
		e, err := readEvent(body)
		if err != nil {
			return nil, err
		}
		all, data = append(all, e), data[16+n:]
	}
	return all, nil
}

// fields calls use with each field of a message: a number, or bytes.
func fields(b []byte, use func(field protowire.Number, n uint64, b []byte) error) error {
	for len(b) > 0 {
		field, typ, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		var n uint64
		var part []byte
		switch typ {
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			n, size = protowire.ConsumeFixed64(b)
		case protowire.Fixed32Type:
			var n32 uint32
			n32, size = protowire.ConsumeFixed32(b)
			n = uint64(n32)
		case protowire.BytesType:
			part, size = protowire.ConsumeBytes(b)
		default:
			return fmt.Errorf("field %d is of type %d", field, typ)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		if err := use(field, n, part); err != nil {
			return err
		}
	}
	return nil
}

func readEvent(b []byte) (e event, err error) {
	err = fields(b, func(field protowire.Number, n uint64, b []byte) error {
		switch field {
		case 1:
			e.at = math.Float64frombits(n)
		case 2:
			e.step = int64(n)
		case 3:
			e.version = string(b)
		case 5:
			return fields(b, func(_ protowire.Number, _ uint64, b []byte) error { return e.value(b) })
		case 7:
			return fields(b, func(field protowire.Number, n uint64, _ []byte) error {
				e.start = field == 1 && n == 1
				return nil
			})
		default:
			return fmt.Errorf("an event's field %d", field)
		}
		return nil
	})
	return e, err
}

// value reads a value of a summary.
func (e *event) value(b []byte) error {
	var tag, text, plugin string
	var simple *float32
	err := fields(b, func(field protowire.Number, n uint64, b []byte) error {
		switch field {
		case 1:
			tag = string(b)
		case 2:
			v := math.Float32frombits(uint32(n))
			simple = &v
		case 8:
			return fields(b, func(field protowire.Number, n uint64, b []byte) error {
				if field == 8 {
					text = string(b)
				}
				if field == 1 && n != 7 {
					return fmt.Errorf("the tensor is of type %d", n)
				}
				return nil
			})
		case 9:
			return fields(b, func(field protowire.Number, _ uint64, b []byte) error {
				if field != 1 {
					return nil
				}
				return fields(b, func(_ protowire.Number, _ uint64, b []byte) error {
					plugin = string(b)
					return nil
				})
			})
		}
		return nil
	})
	switch {
	case err != nil:
		return err
	case simple != nil:
		if e.scalars == nil {
			e.scalars = make(map[string]float32)
		}
		e.scalars[tag] = *simple
	case plugin == "text":
		if e.texts == nil {
			e.texts = make(map[string]string)
		}
		e.texts[tag] = text
	default:
		return fmt.Errorf("%s is neither a scalar nor a text", tag)
	}
	return nil
}
