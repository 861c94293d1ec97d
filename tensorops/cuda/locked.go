package cuda

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"unsafe"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// lockedSource is page-locked memory of the host's. It is for the owner's thread.
type lockedSource struct{ driver *driver.Driver }

// Alloc is tensorops.Source's.
func (s lockedSource) Alloc(b *tensorops.Buffer) error {
	mem, err := s.driver.AllocHost(b.Bytes())
	if driver.IsOutOfMemory(err) {
		return fmt.Errorf("%w: page-locked host memory: %w", tensorops.ErrOutOfMemory, err)
	}
	if err != nil {
		return err
	}
	b.Mem = mem
	locked.add(mem)
	return nil
}

// Free is tensorops.Source's. What the driver does not take back is lost until the context ends.
func (s lockedSource) Free(b *tensorops.Buffer) {
	locked.remove(b.Mem)
	_ = s.driver.FreeHost(b.Mem)
	b.Mem = nil
}

// NewHostArena is tensorops.PageLocker's.
func (d *Device) NewHostArena(name string) tensorops.Arena {
	return d.lockedMemory.NewArenaVia(name, d.owner.call)
}

// locked is the page-locked memory of this process in which tensors may lie. It is page-locked
// for every device, whichever has made it.
var locked lockedBlocks

type lockedBlocks struct {
	mu  sync.RWMutex
	all [][]byte // in the order of their addresses
}

// find is the place of the first block that begins behind an address.
func (l *lockedBlocks) find(at uintptr) int {
	i, _ := slices.BinarySearchFunc(l.all, at, func(b []byte, at uintptr) int {
		if begin(b) <= at {
			return -1
		}
		return cmp.Compare(begin(b), at)
	})
	return i
}

func (l *lockedBlocks) add(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = slices.Insert(l.all, l.find(begin(b)), b)
}

func (l *lockedBlocks) remove(b []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := l.find(begin(b)) - 1; i >= 0 && begin(l.all[i]) == begin(b) {
		l.all = slices.Delete(l.all, i, i+1)
	}
}

// has reports whether all of some bytes lie in a block.
func (l *lockedBlocks) has(b []byte) bool {
	if len(b) == 0 {
		return false
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	i := l.find(begin(b)) - 1
	return i >= 0 && begin(b)+uintptr(len(b)) <= begin(l.all[i])+uintptr(len(l.all[i]))
}

func begin(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
