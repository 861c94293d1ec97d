package cuda

import (
	"errors"
	"unsafe"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// segment is how many operations, from the first on, are kernels and nothing else: they
// need no copy from or to the host or another device, and nothing depends on their outcome.
func (c *checkedIDs) segment(ops []tensorops.Op) int {
	for i := range ops {
		switch o := &ops[i]; o.Kind {
		case tensorops.KindUpload, tensorops.KindFetch, tensorops.KindPeerCopy, tensorops.KindCollective:
			return i
		default:
			if l, ok := lookupOf(o); ok && !c.good(o, l) {
				return i
			}
			c.passed(o)
		}
	}
	return len(ops)
}

// doSegment launches a segment and returns how many of its operations are. It is fewer
// than all with an error, and where the rest has to wait for the batch to complete.
func (x *exec) doSegment(f *launchBatch, ops []tensorops.Op) (done int, err error) {
	x.staging = &f.staging
	whole, err := x.vary(ops)
	if err != nil {
		return 0, roomOrError(err)
	}
	ops = ops[:whole]
	if launched, err := x.launchGraph(ops); err != nil {
		return 0, err
	} else if launched {
		return whole, nil
	}
	done, err = x.launchAll(ops)
	return done, roomOrError(err)
}

// launchAll launches operations kernel by kernel and returns how many.
func (x *exec) launchAll(ops []tensorops.Op) (done int, err error) {
	x.variables.used = 0
	for done < len(ops) {
		n, err := x.do(ops[done:])
		if err == nil && n < 1 {
			err = errors.New("none of its operations was launched")
		}
		if err != nil {
			return done, err
		}
		done += n
	}
	return done, nil
}

// roomOrError is nil for the lack of room in a batch, which is no error.
func roomOrError(err error) error {
	if errors.Is(err, errNoRoom) {
		return nil
	}
	return err
}

// table brings a table for a kernel to the device, for the operation under way.
func table[E any](x *exec, entries []E) (addr uint64, err error) {
	bytes := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(entries))), len(entries)*int(unsafe.Sizeof(*new(E))))
	piece, err := x.staging.whole(len(bytes))
	if err != nil {
		return 0, err
	}
	copy(piece, bytes)
	if addr, err = x.scratch(len(bytes)); err != nil {
		return 0, err
	}
	return addr, x.driver.CopyIn(driver.Address(addr), piece, x.stream)
}
