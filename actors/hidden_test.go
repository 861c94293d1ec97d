package actors_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// hidden computes as the CPU does, in memory that the host cannot address, as a GPU's: a
// buffer has its memory while a list runs that uses it. A list that uses memory of
// another device's is refused.
type hidden struct {
	tensorops.Device

	mu      sync.Mutex
	inUse   int64
	limit   int64 // of it; 0: none
	buffers map[*tensorops.Buffer]*piece
}

// piece is the memory of a buffer, and how many lists run that use it.
type piece struct {
	bytes []byte
	lists int
}

var errForeign = errors.New("memory of another device")

func newHidden(t testing.TB, threads int) *hidden {
	t.Helper()
	d, err := cpu.New(cpu.Options{Threads: threads})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return &hidden{Device: d, buffers: make(map[*tensorops.Buffer]*piece)}
}

func (d *hidden) Memory() tensorops.MemoryStats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return tensorops.MemoryStats{InUse: d.inUse}
}

func (d *hidden) NewStream(name string) tensorops.Stream {
	return &hiddenStream{d.Device.NewStream(name), d, &hiddenArena{device: d, free: make(map[int][]*tensorops.Buffer)}}
}

type hiddenStream struct {
	tensorops.Stream
	device *hidden
	arena  *hiddenArena
}

func (s *hiddenStream) Arena() tensorops.Arena   { return s.arena }
func (s *hiddenStream) NewList() *tensorops.List { return tensorops.NewList(s.arena, nil) }

func (s *hiddenStream) Submit(l *tensorops.List, done func(error)) {
	used, err := s.device.show(l.Ops())
	if err != nil {
		l.Fail(err)
	}
	s.Stream.Submit(l, func(err error) {
		s.device.hide(used)
		done(err)
	})
}

// show gives the buffers of a list their memory.
func (d *hidden) show(ops []tensorops.Op) (used []*tensorops.Buffer, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range ops {
		for _, t := range ops[i].T {
			if !t.Valid() || slices.Contains(used, t.Buffer()) {
				continue
			}
			p := d.buffers[t.Buffer()]
			if p == nil {
				return used, fmt.Errorf("%w: %v", errForeign, &ops[i])
			}
			p.lists++
			t.Buffer().Mem = p.bytes
			used = append(used, t.Buffer())
		}
	}
	return used, nil
}

func (d *hidden) hide(used []*tensorops.Buffer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range used {
		p := d.buffers[b]
		if p.lists--; p.lists == 0 {
			b.Mem = nil
		}
	}
}

// allow limits the bytes in use.
func (d *hidden) allow(bytes int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.limit = bytes
}

// hiddenArena keeps released buffers by size.
type hiddenArena struct {
	device *hidden
	// Guarded by device.mu:
	free map[int][]*tensorops.Buffer // nil: closed
	lent tensorops.Lent
}

func (a *hiddenArena) Take(bytes int) (*tensorops.Buffer, error) {
	_, size := tensorops.SizeClass(bytes)
	d := a.device
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.limit > 0 && d.inUse+int64(size) > d.limit {
		return nil, fmt.Errorf("%w: %d bytes of %d are in use", tensorops.ErrOutOfMemory, d.inUse, d.limit)
	}
	if a.free == nil {
		return nil, tensorops.ErrClosed
	}
	d.inUse += int64(size)
	var b *tensorops.Buffer
	if kept := a.free[size]; len(kept) > 0 {
		a.free[size] = kept[:len(kept)-1]
		b = kept[len(kept)-1]
	} else {
		b = tensorops.NewDeviceBuffer(uint64(len(d.buffers)+1), size, a)
		d.buffers[b] = &piece{bytes: tensorops.HostBytes(make([]float64, size/8))}
	}
	a.lent.Add(b)
	return b, nil
}

func (a *hiddenArena) Close() {
	d := a.device
	d.mu.Lock()
	defer d.mu.Unlock()
	a.free = nil
	for _, b := range a.lent.Clear() {
		d.inUse -= int64(b.Bytes())
	}
}

func (a *hiddenArena) Put(b *tensorops.Buffer) {
	d := a.device
	d.mu.Lock()
	defer d.mu.Unlock()
	if a.free == nil {
		return
	}
	a.lent.Remove(b)
	d.inUse -= int64(b.Bytes())
	a.free[b.Bytes()] = append(a.free[b.Bytes()], b)
}
