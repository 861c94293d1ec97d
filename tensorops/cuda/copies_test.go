//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
)

// TestCopiesAside: large copies go beside the kernels, and yet what is copied is what the
// order of the lists says: on a device that is slow at random, with the next lists behind.
func TestCopiesAside(t *testing.T) {
	l, path := stand(t)
	d := newDevice(t, path, Options{})
	l.Delay(3000)
	s := d.NewStream("copies")
	const n, rounds = minAside / 4, 12
	full := func(v int) []byte { return tensorops.HostBytes(slices.Repeat([]float32{float32(v)}, n)) }
	got := make([][]float32, 4*rounds)
	fetch := func(list *tensorops.List, i int, x tensorops.Tensor) {
		got[i] = make([]float32, n)
		list.Fetch(tensorops.HostBytes(got[i]), x)
	}
	var mu sync.Mutex
	var failed error
	var landed sync.WaitGroup
	aside := l.Calls("cuMemcpyDtoDAsync_v2")
	for round := range rounds {
		list := s.NewList()
		x, y := list.Alloc(tensorops.Float32, n), list.Alloc(tensorops.Float32, n)
		list.Upload(x, full(4*round)) // memory that the round before has freed, and may still be copied out
		fetch(list, 4*round, x)
		list.Fill(x, float64(4*round+1))
		fetch(list, 4*round+1, x)
		list.Copy(y, x)
		list.Upload(x, full(4*round+2)) // after the copy has read it
		fetch(list, 4*round+2, x)
		list.Add(y, y, x)
		fetch(list, 4*round+3, y)
		list.Free(x)
		list.Free(y)
		landed.Add(1)
		s.Submit(list, func(err error) {
			mu.Lock()
			failed = errors.Join(failed, err)
			mu.Unlock()
			landed.Done()
		})
	}
	landed.Wait()
	if failed != nil {
		t.Fatal(failed)
	}
	for i, values := range got {
		want := float32(i)
		if i%4 == 3 {
			want = float32(2*i - 3) // the sum of the two before
		}
		for j, v := range values {
			if v != want {
				t.Fatalf("copy %d, element %d: %v, want %v", i, j, v, want)
			}
		}
	}
	if aside := l.Calls("cuMemcpyDtoDAsync_v2") - aside; aside != 2*rounds {
		t.Errorf("%d copies to the device arrived beside the kernels, want %d", aside, 2*rounds)
	}
}

// TestNoRoomAside: where there is no memory for a large copy to arrive in, it waits for its
// place.
func TestNoRoomAside(t *testing.T) {
	_, path := stand(t)
	const n = minAside / 4
	s := newDevice(t, path, Options{LimitBytes: 4*n + 1024}).NewStream("full")
	list := s.NewList()
	x := list.Alloc(tensorops.Float32, n)
	list.Upload(x, tensorops.HostBytes(slices.Repeat([]float32{3}, n)))
	if err := tensorops.Run(s, list); err != nil {
		t.Fatal(err)
	}
	got, err := fetched(s, x)
	if err != nil || got[0] != 3 || got[n-1] != 3 {
		t.Errorf("%v, %v", got[:1], err)
	}
}
