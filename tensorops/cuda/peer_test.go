//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/standin"
)

// twoDevices opens a stand-in with two devices, which have access to each other's memory or not.
func twoDevices(t *testing.T, peers string) (l *standin.Library, devices [2]*Device) {
	t.Helper()
	t.Setenv(standin.DevicesVariable, "2")
	t.Setenv(standin.PeersVariable, peers)
	l, path := stand(t)
	for i := range devices {
		devices[i] = newDevice(t, path, Options{Device: i})
	}
	return l, devices
}

// numbered is a tensor of n numbers from first on, on a stream.
func numbered(t *testing.T, s tensorops.Stream, first, n int) tensorops.Tensor {
	t.Helper()
	numbers := make([]float32, n)
	for i := range numbers {
		numbers[i] = float32(first + i)
	}
	l := s.NewList()
	x := l.Alloc(tensorops.Float32, n)
	l.Upload(x, tensorops.HostBytes(numbers))
	if err := tensorops.Run(s, l); err != nil {
		t.Fatal(err)
	}
	return x
}

// TestPeerCopy: what is copied from another device arrives, beside kernels or in their order, and
// its memory goes back to its own device when the list is complete.
func TestPeerCopy(t *testing.T) {
	l, d := twoDevices(t, "1")
	if !d[0].CopiesFrom(d[1]) || !d[1].CopiesFrom(d[0]) || !d[0].CopiesFrom(d[0]) || d[0].CopiesFrom(nil) {
		t.Fatal("the devices have no access to each other's memory")
	}
	l.Delay(300)
	a, b := d[0].NewStream("a"), d[1].NewStream("b")
	for _, n := range []int{0, 1, 1000, minAside/4 + 3, limitArrivingBytes/4 + 1} {
		before := l.Calls("cuMemcpyPeerAsync")
		for round := range 3 {
			x := numbered(t, a, round, n)
			if tensorops.Elsewhere(a.Arena(), x) || !tensorops.Elsewhere(b.Arena(), x) {
				t.Error("it is not known whose memory it is")
			}
			list := b.NewList()
			y := list.Alloc(tensorops.Float32, n)
			list.PeerCopy(y, x)
			list.Free(x) // at completion
			if held := d[0].Memory().InUse; n > 0 && held == 0 {
				t.Error("the memory is given back before the copy")
			}
			list.Add(y, y, y)
			got := make([]float32, n)
			list.Fetch(tensorops.HostBytes(got), y)
			list.Free(y)
			if err := tensorops.Run(b, list); err != nil {
				t.Fatal(err)
			}
			for i, v := range got {
				if v != float32(2*(round+i)) {
					t.Fatalf("%d numbers, round %d: number %d is %v", n, round, i, v)
				}
			}
			if d[0].Memory().InUse != 0 || d[1].Memory().InUse != 0 {
				t.Errorf("%+v and %+v are left", d[0].Memory(), d[1].Memory())
			}
		}
		if copies := l.Calls("cuMemcpyPeerAsync") - before; n > 0 && copies != 3 {
			t.Errorf("%d copies of %d numbers between peers, want 3", copies, n)
		}
	}
}

// TestPeersRefused: without access a device says so, and refuses what is in another's memory.
func TestPeersRefused(t *testing.T) {
	for _, peers := range []string{"0", "1"} { // with it, as long as nobody has asked
		_, d := twoDevices(t, peers)
		if peers == "0" && (d[0].CopiesFrom(d[1]) || d[1].CopiesFrom(d[0])) {
			t.Error("it copies where it has no access")
		}
		a, b := d[1].NewStream("a"), d[0].NewStream("b")
		x, list := numbered(t, a, 1, 5), b.NewList()
		list.PeerCopy(list.AllocLike(x), x)
		if err := tensorops.Run(b, list); !errors.Is(err, tensorops.ErrUnsupported) ||
			!strings.Contains(err.Error(), "device 1, to which device 0 has no access") {
			t.Errorf("error %v", err)
		}
		host, err := tensorops.NewTensor(tensorops.NewHostMemory(0).NewArena("host"), tensorops.Float32, 5)
		if err != nil {
			t.Fatal(err)
		}
		list = b.NewList()
		list.PeerCopy(list.AllocLike(host), host)
		if err := tensorops.Run(b, list); !errors.Is(err, tensorops.ErrUnsupported) || !strings.Contains(err.Error(), "not in a GPU's memory") {
			t.Errorf("error %v", err)
		}
	}
}

// TestStandInKeepsDevicesApart: the stand-in refuses what a GPU would, an address of another device's
// in a copy or a kernel.
func TestStandInKeepsDevicesApart(t *testing.T) {
	l, d := twoDevices(t, "1")
	a, b := d[0].NewStream("a"), d[1].NewStream("b")
	x := numbered(t, a, 1, 8)
	at := driver.Address(address(x))
	if err := d[1].owner.call(func() error {
		own, err := d[1].driver.Alloc(64)
		if err != nil {
			return err
		}
		defer func() { _ = d[1].driver.Free(own) }()
		on := b.(*stream).handle
		if err := d[1].driver.CopyWithin(own, at, 32, on); !hasCode(err, 1) {
			t.Errorf("a copy within: %v", err)
		}
		if err := d[1].driver.CopyPeer(own, d[1].context, at, d[0].context, 32, on); !hasCode(err, 1) {
			t.Errorf("a copy from a peer that access was not enabled to: %v", err)
		}
		if err := d[1].driver.CopyWithin(own, own, 32, a.(*stream).handle); !hasCode(err, 400) {
			t.Errorf("another context's stream: %v", err)
		}
		if err := d[1].driver.Free(at); !hasCode(err, 1) {
			t.Errorf("memory is given back to another device: %v", err)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	list := b.NewList()
	list.Fill(x, 1)
	if err := tensorops.Run(b, list); !hasCode(err, 700) {
		t.Errorf("a kernel with another device's memory: %v", err)
	}
	if m := l.Message(); !strings.Contains(m, "kernel fill4 of device 1 is given memory of device 0") {
		t.Errorf("message %q", m)
	}
	// The other device is none the worse.
	if y := numbered(t, a, 1, 8); !y.Valid() {
		t.Error("device 0 has failed with device 1")
	}
}

// hasCode reports whether an error is the driver's of a number.
func hasCode(err error, code int) bool {
	var e *driver.Error
	return errors.As(err, &e) && e.Code == code
}

// TestOrdinals: a device that isn't there is refused, with how many there are.
func TestOrdinals(t *testing.T) {
	t.Setenv(standin.DevicesVariable, "3")
	_, path := stand(t)
	found, err := Find(Options{Driver: path, NVRTC: path, BLAS: NoBLAS})
	if err != nil || len(found) != 3 || found[2].Ordinal != 2 || found[0].ID == found[2].ID || found[0].Path != found[2].Path {
		t.Errorf("%+v, %v", found, err)
	}
	for peers, want := range map[string][]int{"1": {0, 2}, "0": nil} {
		t.Setenv(standin.PeersVariable, peers)
		if is := Describe(Options{Driver: path, NVRTC: path, BLAS: path}); len(is.Devices) != 3 || !slices.Equal(is.Devices[1].Peers, want) {
			t.Errorf("with peers %s: %+v, want device 1 to copy from %d", peers, is.Devices, want)
		}
	}
	for _, ordinal := range []int{-1, 3} {
		if _, err := New(Options{Device: ordinal, Driver: path, NVRTC: path, BLAS: NoBLAS, Cache: t.TempDir()}); !errors.Is(err,
			ErrUnavailable) || !strings.Contains(err.Error(), "the driver sees 3") {
			t.Errorf("device %d: %v", ordinal, err)
		}
	}
}

// TestPageLocked: what is fetched to page-locked memory and uploaded from there, by another
// device, takes no staging.
func TestPageLocked(t *testing.T) {
	l, d := twoDevices(t, "0")
	l.Delay(300)
	a, b := d[0].NewStream("a"), d[1].NewStream("b")
	arena := d[0].NewHostArena("crossing")
	for _, n := range []int{1, 1000, minAside/4 + 3} {
		for round := range 3 {
			x, list := numbered(t, a, round, n), a.NewList()
			host, err := tensorops.NewTensor(arena, tensorops.Float32, n)
			if err != nil {
				t.Fatal(err)
			}
			list.Fetch(tensorops.Bytes(host), x)
			list.Free(x)
			if err := tensorops.Run(a, list); err != nil {
				t.Fatal(err)
			}
			staged := stagedBytes(b)
			list = b.NewList()
			y := list.Alloc(tensorops.Float32, n)
			list.Upload(y, tensorops.Bytes(host))
			list.Free(host)
			list.Add(y, y, y)
			if err := tensorops.Run(b, list); err != nil {
				t.Fatal(err)
			}
			if more := stagedBytes(b) - staged; more != 0 {
				t.Errorf("%d numbers: staging grows by %d bytes", n, more)
			}
			got := make([]float32, n)
			list = b.NewList()
			list.Fetch(tensorops.HostBytes(got), y)
			list.Free(y)
			if err := tensorops.Run(b, list); err != nil {
				t.Fatal(err)
			}
			for i, v := range got {
				if v != float32(2*(round+i)) {
					t.Fatalf("%d numbers, round %d: number %d is %v", n, round, i, v)
				}
			}
		}
	}
	if m := d[0].lockedMemory.Stats(); m.InUse != 0 || m.Pooled == 0 {
		t.Errorf("%+v of page-locked memory", m)
	}
	arena.Close()
	if m := d[0].lockedMemory.Stats(); m.Pooled != 0 || len(locked.all) != 0 {
		t.Errorf("%+v and %d blocks are left", m, len(locked.all))
	}
}

// stagedBytes is the page-locked memory of a stream's batches.
func stagedBytes(s tensorops.Stream) (n int) {
	for _, f := range s.(*stream).all {
		n += f.staging.bytes
	}
	return n
}

// TestLockedBlocks finds what lies in blocks, and what lies across an end does not.
func TestLockedBlocks(t *testing.T) {
	memory := make([]byte, 100)
	l := lockedBlocks{}
	l.add(memory[60:80])
	l.add(memory[10:30])
	for _, c := range []struct {
		first, last int
		has         bool
	}{{10, 30, true}, {12, 13, true}, {60, 80, true}, {0, 5, false}, {5, 15, false}, {29, 31, false}, {10, 80, false}, {40, 50, false},
		{79, 80, true}, {90, 100, false}, {15, 15, false}} {
		if got := l.has(memory[c.first:c.last]); got != c.has {
			t.Errorf("bytes %d to %d: %v", c.first, c.last, got)
		}
	}
	l.remove(memory[12:15]) // no block begins there
	l.remove(memory[10:30])
	if l.has(memory[12:13]) || !l.has(memory[60:61]) || len(l.all) != 1 {
		t.Errorf("%d blocks are left", len(l.all))
	}
}
