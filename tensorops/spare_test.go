package tensorops

import "testing"

// TestSpare: memory that is freed serves the same sizes later, also of another Memory, until it is dropped.
func TestSpare(t *testing.T) {
	s := NewSpare()
	if err := s.Stock(1<<20, func() bool { return false }); err != nil || s.Bytes() != 1<<20 {
		t.Fatalf("%d bytes, %v; want 1 MiB", s.Bytes(), err)
	}
	m := NewMemory(s, 0)
	a := m.NewArena("a")
	first, small := take(t, a, 1<<20), take(t, a, 1000)
	first.Mem[0], small.Mem[0] = 7, 8
	if s.Bytes() != 0 {
		t.Errorf("%d bytes are left, want 0", s.Bytes())
	}
	m.Close()
	if first.Mem != nil || s.Bytes() != 1<<20+1024 {
		t.Errorf("%d bytes were kept, want %d", s.Bytes(), 1<<20+1024)
	}
	other := NewMemory(s, 0)
	b := other.NewArena("b")
	if again := take(t, b, 1<<20); again.Mem[0] != 7 || s.Bytes() != 1024 {
		t.Errorf("the memory is not that of before; %d bytes are left, want 1024", s.Bytes())
	}
	s.Drop()
	other.Close()
	if s.Bytes() != 0 {
		t.Errorf("%d bytes were kept after Drop", s.Bytes())
	}
	s.Keep()
	last := NewMemory(s, 0)
	take(t, last.NewArena("c"), 5000)
	last.Close()
	if s.Bytes() == 0 {
		t.Error("nothing was kept after Keep")
	}
	joined := NewSpare()
	joined.Add(s)
	joined.Add(nil)
	if s.Bytes() != 0 || joined.Bytes() == 0 {
		t.Errorf("%d bytes, and %d where they were added", s.Bytes(), joined.Bytes())
	}
	joined.Drop()
	(*Spare)(nil).Drop()
}
