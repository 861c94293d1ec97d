package collective

import (
	"bytes"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
)

// deaf is a carrier of which nothing is heard.
type deaf struct{}

func (deaf) Receive(Receiver)                                    {}
func (deaf) Frees(int, int) bool                                 { return false }
func (deaf) Send(int, []byte, [][]byte, func(bool), func(error)) {}
func (deaf) Tell(int, []byte)                                    {}
func (deaf) Close()                                              {}
func firstMessage(ph phase, what tensorops.Collective) message {
	m := message{phase: ph, seq: 1, sig: Signature{what: what, dtype: tensorops.Float32, rank: 1}}
	m.sig.dims[0] = 1000
	return m
}

// FuzzTake: whatever a member sends, it is taken, or ends the group; nothing is allocated beyond the limits.
func FuzzTake(f *testing.F) {
	for what := tensorops.AllReduce; what <= tensorops.Barrier; what++ {
		f.Add(firstMessage(gives, what).encode(), uint16(1344), uint16(0), true)
		f.Add(firstMessage(ready, what).encode(), uint16(0), uint16(0), false)
	}
	f.Add([]byte{messageVersion}, uint16(1), uint16(2), true)
	f.Fuzz(func(t *testing.T, header []byte, length, second uint16, begun bool) {
		g := over("dp", 0, 3, deaf{}, sizes{piece: 4096, gather: 512, eager: 8192, copied: 512})
		defer g.Leave(nil)
		if begun {
			a, err := tensorops.NewTensor(tensorops.NewHostMemory(0).NewArena("test"), tensorops.Float32, 1000)
			if err != nil {
				t.Fatal(err)
			}
			g.AllReduce(a, tensorops.Sum)
		}
		x := g.way.(*exchange)
		for from := -1; from <= 3; from++ {
			lens := []int{int(length), int(second)}
			if !taken(t, x, from, header, lens) {
				continue
			}
			x.Told(from, header)
		}
	})
}

// taken reports whether an exchange takes a message, and checks that there is memory for each of its parts.
func taken(t *testing.T, x *exchange, from int, header []byte, lens []int) bool {
	t.Helper()
	parts, done, err := x.Take(from, header, lens, nil)
	if err != nil {
		return false
	}
	for i, b := range parts {
		if len(b) != lens[i] {
			t.Fatalf("memory of %d bytes for %d", len(b), lens[i])
		}
		clear(b)
	}
	done(nil)
	return true
}

// FuzzTakeRows is FuzzTake for an exchange of rows, whose messages have lengths of their own.
func FuzzTakeRows(f *testing.F) {
	m := firstMessage(gives, tensorops.AllToAllV)
	m.sig.dims[0], m.sig.dim = 5, 6
	f.Add(m.encode(), uint16(40), uint16(0))
	f.Add(m.encode(), uint16(0), uint16(0))
	f.Fuzz(func(t *testing.T, header []byte, length, second uint16) {
		g := over("ep", 0, 3, deaf{}, sizes{piece: 4096, gather: 512, eager: 8192, copied: 512})
		defer g.Leave(nil)
		arena := tensorops.NewHostMemory(0).NewArena("test")
		tensor := func(d tensorops.DType, shape ...int) tensorops.Tensor {
			x, err := tensorops.NewTensor(arena, d, shape...)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		table := tensor(tensorops.Int32, 3, 7)
		copy(tensorops.Elements[int32](table), []int32{0, 1, 2, 3, 4, 5, 6, 0, 2, 2, 2, 3, 3, 3, 0, 0, 0, 0, 0, 0, 9})
		g.AllToAllV(tensor(tensorops.Float32, 9, 5), tensor(tensorops.Float32, 9, 5), table, false)
		x := g.way.(*exchange)
		x.mu.Lock()
		sig := x.at(1).call.sig
		x.mu.Unlock()
		for from := range 3 {
			for _, of := range [][]byte{header, message{phase: gives, seq: 1, sig: sig}.encode()} {
				lens := []int{int(length), int(second)}
				if second == 0 {
					lens = lens[:1]
				}
				taken(t, x, from, of, lens)
			}
		}
	})
}

// FuzzMessage: what can be read is what was written.
func FuzzMessage(f *testing.F) {
	f.Add(firstMessage(results, tensorops.Broadcast).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(b)
		if err != nil {
			return
		}
		copy(b[6:8], []byte{0, 0})
		if again := m.encode(); !bytes.Equal(again, b) {
			t.Errorf("%x is written as %x", b, again)
		}
	})
}
