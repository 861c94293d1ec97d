package hostmem_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/troupe-ml/troupe/internal/host/hostmem"
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
		p.Populate(func() bool { return false })
		for i := range p.Bytes {
			p.Bytes[i] = byte(i)
		}
		p.Populate(func() bool { return false })
		for i, b := range p.Bytes {
			if b != byte(i) {
				t.Fatalf("byte %d of %d is %d after Populate, want %d", i, size, b, byte(i))
			}
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

func TestMapFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	content, err := hostmem.MapFile(f, 4)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil || string(content) != "cont" {
		t.Errorf("%q, %v", content, err)
	}
	if err := hostmem.UnmapFile(content); err != nil {
		t.Error(err)
	}
	if _, err := hostmem.MapFile(f, 4); err == nil {
		t.Error("a closed file was mapped")
	}
}

// TestForget: a part of a mapped file stays valid after its memory is freed.
func TestForget(t *testing.T) {
	content := make([]byte, 5*os.Getpagesize()+7)
	for i := range content {
		content[i] = byte(i * 7)
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	mapped, err := hostmem.MapFile(f, len(content))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range [][]byte{nil, mapped[:1], mapped[3:9], mapped[1 : len(mapped)-1], mapped} {
		hostmem.Forget(part)
		if !bytes.Equal(mapped, content) {
			t.Fatalf("after %d bytes were freed, the file is another", len(part))
		}
	}
	if err := hostmem.UnmapFile(mapped); err != nil {
		t.Fatal(err)
	}
}
