package cuda

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// blas is cuBLASLt, for all streams of a device. After its making it is the owner's
// thread's alone; only whether it is there is known to all.
type blas struct {
	library  *driver.BLAS // nil: it is not there
	required bool         // its path was given
	tf32     bool
	gelu     GELU
	handle   driver.BLASHandle
	plans    map[driver.Matmul]*driver.MatmulPlan // nil: the library has no algorithm
}

// openBLAS looks for the library. Only one that was asked for by its path has to be there.
func openBLAS(o Options, d *driver.Driver) (blas, error) {
	b := blas{required: o.libraries().NeedsBLAS(), tf32: o.TF32, gelu: o.GELU, plans: make(map[driver.Matmul]*driver.MatmulPlan)}
	var err error
	major, _ := d.Version()
	if b.library, err = driver.OpenBLAS(o.libraries(), major); b.required {
		return b, err
	}
	return b, nil
}

func (b *blas) isThere() bool { return b.library != nil }

// suffix is the library's part of a device's path: where it is there, results have its
// version's bits.
func (b *blas) suffix(target string) string {
	if !b.isThere() {
		return ""
	}
	major, minor := b.library.Version()
	s := fmt.Sprintf("-cublaslt-%d.%d", major, minor) + b.gelu.suffix(target)
	if b.tf32 {
		s += "-tf32"
	}
	return s
}

// begin makes the library's state in the device's context. A library that was found but
// does not work, as one that is newer than the driver, is not there.
func (b *blas) begin() (err error) {
	if !b.isThere() {
		return nil
	}
	if b.handle, err = b.library.Create(); err == nil {
		return nil
	}
	err = fmt.Errorf("%s: %w", b.library.Path(), err)
	b.library = nil
	if b.required {
		return err
	}
	return nil
}

// end gives it back, when nothing runs any more.
func (b *blas) end() {
	if !b.isThere() {
		return
	}
	b.forget()
	_ = b.library.Destroy(b.handle) // the context ends in any case
}

// forget ends all plans.
func (b *blas) forget() {
	for _, p := range b.plans {
		if p != nil {
			p.End()
		}
	}
	clear(b.plans)
}

// plan is the way to compute a product, the same whenever it is asked for; nil if the
// library has none.
func (b *blas) plan(m *driver.Matmul) (*driver.MatmulPlan, error) {
	if p, ok := b.plans[*m]; ok {
		return p, nil
	}
	p, err := b.library.Plan(b.handle, m, workspaceBytes)
	if err != nil {
		return nil, err
	}
	if len(b.plans) >= limitPlans {
		b.forget()
	}
	b.plans[*m] = p
	return p, nil
}

// drop remembers that the library has no algorithm for a product after all.
func (b *blas) drop(m *driver.Matmul) {
	b.plans[*m].End()
	b.plans[*m] = nil
}
