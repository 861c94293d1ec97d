package cuda

import (
	"encoding/binary"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// variables are what changes from step to step where all else of a kernel's argument may
// stay: the counters of dropout masks. They lie in memory of the stream's, one after the
// other in the order of a segment's masks, so that the same launches serve every step.
type variables struct {
	at   driver.Address
	used int // masks of the segment under way
}

const variableBytes = 16 // the step, and the index of the first element

// next is the address of the next mask's counters.
func (v *variables) next() uint64 {
	v.used++
	return uint64(v.at) + uint64(variableBytes*(v.used-1))
}

// vary brings the counters of a segment's masks to the device. It returns how many of the
// operations the memory for them serves.
func (x *exec) vary(ops []tensorops.Op) (int, error) {
	count := 0
	for i := range ops {
		if !masked(&ops[i]) {
			continue
		}
		if count == limitMasks {
			ops = ops[:i]
			break
		}
		count++
	}
	if count == 0 {
		return len(ops), nil
	}
	piece, err := x.staging.whole(variableBytes * count)
	if err != nil {
		return 0, err
	}
	at := piece
	for i := range ops {
		if o := &ops[i]; masked(o) {
			m := o.Mask()
			binary.NativeEndian.PutUint64(at, m.Step)
			binary.NativeEndian.PutUint64(at[8:], m.First)
			at = at[variableBytes:]
		}
	}
	return len(ops), x.driver.CopyIn(x.variables.at, piece, x.stream)
}
