//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
)

// uploaded is a tensor of a stream's with those numbers.
func uploaded(t *testing.T, s tensorops.Stream, values []float32) tensorops.Tensor {
	t.Helper()
	l := s.NewList()
	x := l.Alloc(tensorops.Float32, len(values))
	l.Upload(x, tensorops.HostBytes(values))
	if err := tensorops.Run(s, l); err != nil {
		t.Fatal(err)
	}
	return x
}

// carry takes the pieces of a tensor to another one, by several goroutines.
func carry(t *testing.T, from, to *tensorops.Pieces) {
	t.Helper()
	var ended sync.WaitGroup
	const carriers = 3
	never := make(chan struct{})
	for first := range carriers {
		ended.Go(func() {
			for offset := first * tensorops.PieceBytes; offset < from.Len(); offset += carriers * tensorops.PieceBytes {
				n := min(tensorops.PieceBytes, from.Len()-offset)
				out, err := from.Lend(never)
				if err != nil {
					t.Error(err)
					return
				}
				out.Copy(offset, n)
				in, err := to.Lend(never)
				if err == nil {
					err = out.Wait()
				}
				if err != nil {
					t.Error(err)
					return
				}
				copy(in.Memory(), out.Memory()[:n])
				out.Release()
				in.Copy(offset, n)
				if err := in.Wait(); err != nil {
					t.Error(err)
				}
				in.Release()
			}
		})
	}
	ended.Wait()
}

// TestPieces: a tensor goes from one device to another piece by piece while streams work, and
// page-locked memory is bounded.
func TestPieces(t *testing.T) {
	l, path := stand(t)
	a, b := newDevice(t, path, Options{}), newDevice(t, path, Options{})
	l.Delay(50)
	sa, sb := a.NewStream("a"), b.NewStream("b")
	values := make([]float32, 5*tensorops.PieceBytes/4+1234)
	for i := range values {
		values[i] = float32(i % 65537)
	}
	x := uploaded(t, sa, values)
	arrivals, ok := tensorops.Beside(sb.Arena(), "what comes in")
	if !ok {
		t.Fatal("the device copies no pieces")
	}
	for range 5 { // what was freed is taken again
		y, err := tensorops.NewTensor(arrivals, tensorops.Float32, len(values))
		if err != nil {
			t.Fatal(err)
		}
		from, leaves := tensorops.Leaving(x)
		to, arrives := tensorops.Arriving(y)
		if !leaves || !arrives || from.Len() != 4*len(values) {
			t.Fatalf("it leaves: %v, comes: %v", leaves, arrives)
		}
		carry(t, from, to)
		if got, err := fetched(sb, y); err != nil || !slices.Equal(got, values) {
			t.Fatalf("other numbers came, or %v", err)
		}
	}
	x.Release()
	arrivals.Close()
	host, err := tensorops.NewTensor(tensorops.NewHostMemory(0).NewArena("host"), tensorops.Float32, 4)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := tensorops.Leaving(host); ok {
		t.Error("a tensor in host memory leaves in pieces")
	}
}

// TestPiecesLimit: there are so many pieces and no more. Who waits for one gets the next that
// comes back, or gives up.
func TestPiecesLimit(t *testing.T) {
	_, path := stand(t)
	d := newDevice(t, path, Options{})
	s := d.NewStream("s")
	x := uploaded(t, s, make([]float32, 10))
	defer x.Release()
	from, _ := tensorops.Leaving(x)
	to, _ := tensorops.Arriving(x)
	var all []tensorops.Piece
	for range limitPieces {
		p, err := from.Lend(nil)
		if p == nil {
			t.Fatalf("%d pieces, %v", len(all), err)
		}
		all = append(all, p)
	}
	if p, err := from.Lend(nil); p != nil || err != nil {
		t.Errorf("one more than the limit: %v, %v", p, err)
	}
	if p, err := to.Lend(nil); p == nil { // those that come in have their own
		t.Error(err)
	} else {
		p.Release()
	}
	cancel := make(chan struct{}, 1)
	cancel <- struct{}{}
	if p, err := from.Lend(cancel); p != nil || err != nil {
		t.Errorf("cancelled: %v, %v", p, err)
	}
	got := make(chan tensorops.Piece)
	go func() { // ends with a piece
		p, _ := from.Lend(make(chan struct{}))
		got <- p
	}()
	all[0].Release()
	if p := <-got; p == nil || p != all[0] {
		t.Error("another piece than the one that came back")
	}
	for _, p := range all {
		p.Release()
	}
}

// TestPiecesFail: what the driver says of a copy, whoever waits for it hears; and a device that
// is closed lends nothing.
func TestPiecesFail(t *testing.T) {
	l, path := stand(t)
	d := newDevice(t, path, Options{})
	s := d.NewStream("s")
	x := uploaded(t, s, make([]float32, 10))
	from, _ := tensorops.Leaving(x)
	p, err := from.Lend(nil)
	if err != nil {
		t.Fatal(err)
	}
	l.Fail("cuMemcpyDtoHAsync_v2", 1, 1)
	for _, fails := range []bool{true, false} {
		p.Copy(0, 40)
		if err := p.Wait(); (err != nil) != fails {
			t.Errorf("error %v, want one: %v", err, fails)
		}
	}
	p.Release()
	x.Release()
	d.Close()
	if p, err := from.Lend(nil); p != nil || !errors.Is(err, tensorops.ErrClosed) {
		t.Errorf("a closed device: %v, want ErrClosed", err)
	}
}
