package p2p

import (
	"encoding/binary"
	"fmt"

	"github.com/troupe-ml/troupe/internal/collective"
	"github.com/troupe-ml/troupe/tensorops"
)

// Over makes the port of a stage whose peers are in other processes. carrier carries the messages of all stages (see package
// collective).
func Over(rank, size int, cfg Config, carrier collective.Carrier) *Port {
	p := newPort(rank, size, cfg)
	p.remote = true
	p.send = func(to int, m message, done func(error)) {
		header := binary.LittleEndian.AppendUint64([]byte{byte(m.way), byte(len(m.items))}, m.number)
		parts := make([][]byte, len(m.items))
		for i, it := range m.items {
			flags := byte(0)
			if it.narrow {
				flags |= 1
			}
			if it.whole != nil {
				flags |= 2
			}
			header = append(header, byte(it.DType()), flags)
			header = appendShape(header, it.Shape())
			if it.whole != nil {
				header = appendShape(header, it.whole)
			}
			parts[i] = tensorops.Bytes(it.Tensor)
		}
		carrier.Send(to, header, parts, nil, func(err error) {
			if err == nil { // the receiver has it
				releaseItems(m.items)
			}
			done(err)
		})
	}
	carrier.Receive(receiver{p})
	return p
}

func appendShape(b []byte, shape []int) []byte {
	b = append(b, byte(len(shape)))
	for _, d := range shape {
		b = binary.LittleEndian.AppendUint32(b, uint32(d))
	}
	return b
}

// receiver passes a carrier's messages to a port.
type receiver struct{ p *Port }

func (r receiver) Take(from int, header []byte, lens []int, _ collective.Loan) (payload [][]byte, done func(error), err error) {
	m, err := r.p.parse(header, lens)
	if err != nil {
		return nil, nil, fmt.Errorf("stage %d, from stage %d: %w", r.p.rank, from, err)
	}
	for _, it := range m.items {
		payload = append(payload, tensorops.Bytes(it.Tensor))
	}
	return payload, func(err error) {
		if err == nil {
			err = r.p.deliver(from, m)
		}
		if err != nil {
			releaseItems(m.items)
		}
	}, nil
}

// Told implements collective.Receiver and does nothing.
func (receiver) Told(int, []byte) {}

// Gone closes the port, because the failed stage's messages will not come.
func (r receiver) Gone(from int, cause error) {
	r.p.Close(fmt.Errorf("stage %d failed: %w", from, cause))
}

// parse parses a header and allocates the tensors that follow. It compares their lengths first.
func (p *Port) parse(b []byte, lens []int) (m message, err error) {
	bad := fmt.Errorf("%w: invalid header of %d bytes for %d parts", ErrUnexpected, len(b), len(lens))
	if len(b) < 10 || Direction(b[0]) >= numDirections || int(b[1]) != len(lens) || len(lens) == 0 || len(lens) > LimitTensors {
		return m, bad
	}
	m.way, m.number, b = Direction(b[0]), binary.LittleEndian.Uint64(b[2:]), b[10:]
	defer func() {
		if err != nil {
			releaseItems(m.items)
		}
	}()
	for _, n := range lens {
		if len(b) < 2 || !tensorops.DType(b[0]).Known() || b[1] > 3 {
			return m, bad
		}
		dtype, flags := tensorops.DType(b[0]), b[1]
		shape, rest, ok := takeShape(b[2:])
		if !ok || elements(shape)*dtype.Size() != n {
			return m, bad
		}
		it := item{narrow: flags&1 != 0}
		if it.narrow && dtype != tensorops.BFloat16 {
			return m, bad
		}
		if b = rest; flags&2 != 0 {
			if it.whole, b, ok = takeShape(b); !ok || len(shape) != 1 {
				return m, bad
			}
		}
		if it.Tensor, err = tensorops.NewTensor(p.cfg.Arena, dtype, shape...); err != nil {
			return m, err
		}
		m.items = append(m.items, it)
	}
	if len(b) > 0 {
		return m, bad
	}
	return m, nil
}

// takeShape parses a shape, with at most as many elements as a tensor can have.
func takeShape(b []byte) (shape []int, rest []byte, ok bool) {
	if len(b) == 0 || b[0] > tensorops.MaxRank || len(b) < 1+4*int(b[0]) {
		return nil, nil, false
	}
	n, all := int(b[0]), uint64(1)
	shape = make([]int, n)
	for i := range shape {
		d := binary.LittleEndian.Uint32(b[1+4*i:])
		if d > tensorops.MaxDim {
			return nil, nil, false
		}
		if shape[i] = int(d); d > 0 {
			if all *= uint64(d); all > 1<<40 {
				return nil, nil, false
			}
		}
	}
	return shape, b[1+4*n:], true
}

func elements(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}
