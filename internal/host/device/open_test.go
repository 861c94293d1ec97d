package device

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// What can't be opened is refused under the key that asks for it, with its cause; and what
// was opened before it is closed.
func TestOpenRefuses(t *testing.T) {
	t.Setenv("TROUPE_LIBCUDA", filepath.Join(t.TempDir(), "libcuda.so")) // no machine has a GPU by that
	for _, c := range []struct {
		name string
		set  string
		is   error
		says []string
	}{
		{"no GPU", "device.kind=cuda", cuda.ErrUnavailable, []string{"device.kind: ", "CUDA is not available"}},
		{"no GPU for any rank", `device.ranks=["cuda", "cuda", "cuda"]`, cuda.ErrUnavailable,
			[]string{"device.ranks: ", "CUDA is not available"}},
		{"unknown kernels", "device.kernels=mmx", cpu.ErrKernels, []string{"device.kernels: ", `"mmx"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer goleak.VerifyNone(t)
			cfg := ranks(t, c.set)
			d, openErr := Open(cfg)
			s, setErr := OpenSet(cfg)
			if d != nil || s != nil {
				t.Errorf("device %v, set %v, want none", d, s)
			}
			for _, err := range []error{openErr, setErr} {
				if !errors.Is(err, c.is) {
					t.Fatalf("error %v, want %v", err, c.is)
				}
				for _, text := range c.says {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("%q isn't in: %v", text, err)
					}
				}
			}
		})
	}
	t.Run("no GPU for one rank", func(t *testing.T) {
		defer goleak.VerifyNone(t)
		if s, err := OpenSet(ranks(t, `device.ranks=["cpu", "cpu", "cuda"]`)); s != nil || !errors.Is(err, cuda.ErrUnavailable) {
			t.Errorf("set %v, error %v, want ErrUnavailable", s, err)
		}
	})
}

// A set tells the memory of each kind, and of one that it hasn't there is none.
func TestSetMemory(t *testing.T) {
	s, err := OpenSet(ranks(t, "device.threads=1"))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if len(s.Opened()) != 1 || s.Threads() != 1 {
		t.Fatalf("%d devices of %d threads, want 1 of 1", len(s.Opened()), s.Threads())
	}
	stream := s.Opened()[0].NewStream("test")
	defer tensorops.CloseStream(stream)
	l := stream.NewList()
	x := l.Alloc(tensorops.Float32, 100)
	l.Fill(x, 1)
	if err := tensorops.Run(stream, l); err != nil {
		t.Fatal(err)
	}
	if got := s.Memory(CPU).InUse; got < 400 {
		t.Errorf("%d bytes in use, want 400 at least", got)
	}
	if got := s.Memory(CUDA); got != (tensorops.MemoryStats{}) || s.GPUs() != nil || s.Apart() != nil {
		t.Errorf("without a GPU: %+v, %v and %v, want none", got, s.GPUs(), s.Apart())
	}
	free := stream.NewList()
	free.Free(x)
	if err := tensorops.Run(stream, free); err != nil {
		t.Error(err)
	}
}

// What is no GPU has the machine's memory, and no TensorFloat-32 to ask for.
func TestHost(t *testing.T) {
	old := HostFreeBytes
	defer func() { HostFreeBytes = old }()
	HostFreeBytes = func() int64 { return 12345 }
	d, err := OpenKind(Options{Kind: CPU, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if FreeBytes(d) != 12345 || !KnowsTF32(d) {
		t.Errorf("%d bytes free, TF32 %v, want 12345 and nothing to ask", FreeBytes(d), KnowsTF32(d))
	}
}

// The environment names libraries that lie in no usual place.
func TestCUDAOptions(t *testing.T) {
	t.Setenv("TROUPE_LIBCUDA", "a")
	t.Setenv("TROUPE_LIBNVRTC", cuda.NoNVRTC)
	t.Setenv("TROUPE_LIBCUBLASLT", cuda.NoBLAS)
	if o := CUDAOptions(); o != (cuda.Options{Driver: "a", NVRTC: cuda.NoNVRTC, BLAS: cuda.NoBLAS}) {
		t.Errorf("%+v", o)
	}
	if cfg := ranks(t, `device.ranks=["cpu", "cuda", "auto"]`); KindOf(cfg, 0) != CPU || KindOf(cfg, 1) != CUDA || KindOf(cfg, 2) != CPU {
		t.Errorf("kinds %s, %s, %s", KindOf(cfg, 0), KindOf(cfg, 1), KindOf(cfg, 2))
	}
}
