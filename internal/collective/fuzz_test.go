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
			parts, done, err := x.Take(from, header, lens, nil)
			if err != nil {
				continue
			}
			for i, b := range parts {
				if len(b) != lens[i] {
					t.Fatalf("memory of %d bytes for %d", len(b), lens[i])
				}
				clear(b)
			}
			done(nil)
			x.Told(from, header)
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
