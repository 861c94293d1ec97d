package hostmem_test

import (
	"testing"
	"unsafe"

	"github.com/troupe-ml/troupe/internal/hostmem"
)

func TestPieces(t *testing.T) {
	for _, size := range []int{0, 1, 63, 64, 4097, 1 << 18, 1<<18 + 1, 2<<20 - 1, 2 << 20, 5<<20 + 17} {
		p, err := hostmem.New(size)
		if err != nil {
			t.Fatal(err)
		}
		if len(p.Bytes) != size || cap(p.Bytes) != size {
			t.Fatalf("%d bytes asked, %d (capacity %d) came", size, len(p.Bytes), cap(p.Bytes))
		}
		if at := uintptr(unsafe.Pointer(unsafe.SliceData(p.Bytes))); at%hostmem.Align != 0 {
			t.Errorf("%d bytes begin at %#x", size, at)
		}
		for i := range p.Bytes {
			p.Bytes[i] = byte(i)
		}
		if err := p.Free(); err != nil {
			t.Error(err)
		}
		if err := p.Free(); err != nil || p.Bytes != nil {
			t.Error("a second Free must do nothing:", err)
		}
	}
}

func TestTooMuch(t *testing.T) {
	if p, err := hostmem.New(1 << 47); err == nil {
		t.Errorf("128 TiB were given: %d bytes", len(p.Bytes))
	}
}
