package cuda

import (
	"encoding/binary"
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// Which rows an expert has is data of the device, so the host cannot check it before the kernels that read it. They touch
// nothing that does not exist, and store a word for the host if they had to leave something out. The host reads it at the end of
// the batch: nothing waits for that, except for the report of the list.

// routeFault is route_fault of expert.cuh.
type routeFault struct {
	word    uint64 // the address
	kind, _ int32
}

// routeFaultOf is that of an operation.
func (x *exec) routeFaultOf(o *tensorops.Op) routeFault {
	return routeFault{word: x.badRoute, kind: int32(o.Kind)}
}

const routeBytes = 8 // of the word

// readsRoutes reports whether an operation's kernels read places, experts or offsets that may be wrong.
func readsRoutes(k tensorops.Kind) bool {
	switch k {
	case tensorops.KindRouteGrad, tensorops.KindRouteStats, tensorops.KindRouteCount, tensorops.KindDispatch,
		tensorops.KindCombine, tensorops.KindWeighRows, tensorops.KindSourceOffsets,
		tensorops.KindGroupedMatMul, tensorops.KindGroupedWeightGrad, tensorops.KindGroupedColSum, tensorops.KindWeighBias:
		return true
	}
	return false
}

// fetchRoutes brings the word to the host, and clears it for the next batch, if one of the batch's operations may have stored it.
func (s *stream) fetchRoutes(f *launchBatch, ops []tensorops.Op) error {
	for i := range ops {
		if !readsRoutes(ops[i].Kind) {
			continue
		}
		f.routed = true
		if err := s.dev.driver.CopyOut(f.fault[faultRoute:faultRoute+routeBytes], driver.Address(s.exec.badRoute), s.handle); err != nil {
			return err
		}
		return s.dev.driver.Clear(driver.Address(s.exec.badRoute), routeBytes/4, s.handle)
	}
	return nil
}

// checkRoutes reports what the batch's kernels have stored.
func (f *launchBatch) checkRoutes() error {
	if !f.routed {
		return nil
	}
	word := binary.NativeEndian.Uint64(f.fault[faultRoute:])
	if word == 0 {
		return nil
	}
	return fmt.Errorf("%w: a %v of the list has places, experts or offsets that cannot be; number %d of them is one", tensorops.ErrRoute,
		tensorops.Kind(word>>32), uint32(word))
}
