package cuda

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// blas is cuBLASLt, for all streams of a device. After its making it is the owner's
// thread's alone; only whether it is there is known to all.
type blas struct {
	library  *driver.BLAS // nil: it is not there
	required bool         // its path was given
	tf32     bool
	handle   driver.BLASHandle
	plans    map[driver.Matmul]*driver.MatmulPlan // nil: the library has no algorithm
}

// openBLAS looks for the library. Only one that was asked for by its path has to be there.
func openBLAS(o Options, d *driver.Driver) (blas, error) {
	b := blas{required: o.libraries().NeedsBLAS(), tf32: o.TF32, plans: make(map[driver.Matmul]*driver.MatmulPlan)}
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
func (b *blas) suffix() string {
	if !b.isThere() {
		return ""
	}
	major, minor := b.library.Version()
	s := fmt.Sprintf("-cublaslt-%d.%d", major, minor)
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
	if len(b.plans) >= LimitPlans {
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

// byLibrary has the library compute the product, and with it the GELU of it if that is the
// next operation. It returns how many operations that were; 0 if there is no algorithm.
func (p product) byLibrary(x *exec, ops []tensorops.Op, made *roundings) (int, error) {
	if len(ops) > 1 && p.goesInto(&ops[1]) {
		ok, err := p.withGELU(x, ops[1].T[0], made)
		if err != nil {
			return 0, err
		}
		if ok {
			return 2, nil
		}
	}
	ok, err := p.plain(x, made)
	if !ok || err != nil {
		return 0, err
	}
	return 1, nil
}

// plain is the product with what C starts from.
func (p product) plain(x *exec, made *roundings) (bool, error) {
	c, bias := p.op.T[0], address(p.op.T[3])
	m := p.matmul(x, stride(c), address(c))
	if bias != 0 {
		m.Epilogue, m.AlignBias = driver.Bias, alignment(bias)
	}
	plan, err := x.blas.plan(&m)
	if plan == nil || err != nil {
		return false, failedProduct(&m, err)
	}
	return p.run(x, plan, &m, driver.Places{D: driver.Address(address(c)), Bias: driver.Address(bias)}, made)
}

// auxRow is what rows of the matrix that a GELU is taken of have to be multiples of.
const auxRow = 8

// goesInto reports whether an operation is the GELU of the product, and the library may
// do both. It has the same form of GELU as the kernel: that of the hyperbolic tangent.
func (p product) goesInto(o *tensorops.Op) bool {
	c, bias := p.op.T[0], p.op.T[3]
	return o.Kind == tensorops.KindGELU && bias.Valid() && c.Contiguous() && p.n%auxRow == 0 &&
		address(o.T[1]) == address(c) && o.T[1].Len() == c.Len() && address(o.T[0]) != address(c)
}

// withGELU writes the product with its bias to C and the GELU of that to y.
func (p product) withGELU(x *exec, y tensorops.Tensor, made *roundings) (bool, error) {
	c, bias, to := address(p.op.T[0]), address(p.op.T[3]), address(y)
	m := p.matmul(x, p.n, to)
	m.Epilogue, m.AlignBias = driver.GELUAuxBias, alignment(bias)
	m.LDAux, m.AlignAux = p.n, alignment(c)
	plan, err := x.blas.plan(&m)
	if plan == nil || err != nil {
		return false, failedProduct(&m, err)
	}
	// The memory of y may have been that of A, say, until the product. Whether it is is a
	// matter of chance, which must not change a bit: so y is computed elsewhere.
	beside := !p.apartFrom(y)
	if beside {
		if to, err = x.scratch(4 * p.m * p.n); err != nil {
			return false, err
		}
	}
	done, err := p.run(x, plan, &m, driver.Places{D: driver.Address(to), Bias: driver.Address(bias), Aux: driver.Address(c)}, made)
	if !done || err != nil || !beside {
		return done, err
	}
	return true, copyDense(x, address(y), to, p.m*p.n)
}

// apartFrom reports whether the product neither reads nor writes the memory of y.
func (p product) apartFrom(y tensorops.Tensor) bool {
	for _, t := range p.op.T[:5] {
		if extentOf(t).meets(extentOf(y)) {
			return false
		}
	}
	return true
}

// matmul is the product as the library is asked for it, with D at an address. The library
// takes matrices to lie by columns: what lies by rows is to it the transposed matrix, so it
// is asked for Cᵀ = op(B)ᵀ·op(A)ᵀ.
func (p product) matmul(x *exec, strideD int, d uint64) driver.Matmul {
	m := driver.Matmul{
		M: p.n, N: p.m, K: p.k,
		TransA: p.op.Has(tensorops.FlagTransB), TransB: p.op.Has(tensorops.FlagTransA),
		LDD: strideD, AlignD: alignment(d),
		Epilogue: driver.NoEpilogue,
	}
	m.LDA, m.AlignA = p.operand(operandB)
	m.LDB, m.AlignB = p.operand(operandA)
	switch {
	case p.op.Has(tensorops.FlagBF16):
		m.Precision = driver.BFloat16
	case x.blas.tf32:
		m.Precision = driver.TF32
	}
	return m
}

// The operands' places in T.
const (
	operandA = 1
	operandB = 2
)

// operand is how the library finds A or B: the distance of its rows, and what its address
// is a multiple of. What is rounded first lies at the beginning of a buffer.
func (p product) operand(which int) (distance, align int) {
	t := p.op.T[which]
	switch packed := p.op.T[4]; {
	case !p.op.Has(tensorops.FlagBF16):
		return stride(t), alignment(address(t))
	case which == operandB && packed.Valid():
		return roundedStride(t), alignment(address(packed))
	}
	return roundedStride(t), mostAlignment
}

// run puts the product into the stream; false if the library has no algorithm for it after
// all.
func (p product) run(x *exec, plan *driver.MatmulPlan, m *driver.Matmul, at driver.Places, made *roundings) (bool, error) {
	a, err := made.address(x, p.op, operandA)
	if err != nil {
		return false, err
	}
	b, err := made.address(x, p.op, operandB)
	if err != nil {
		return false, err
	}
	at.A, at.B, at.Workspace = driver.Address(b), driver.Address(a), x.workspace
	err = plan.Run(at, p.op.Has(tensorops.FlagAccumulate), x.stream)
	if driver.IsUnsupported(err) {
		x.blas.drop(m)
		return false, nil
	}
	return err == nil, failedProduct(m, err)
}

// failedProduct says which product an error is of, as the library has it.
func failedProduct(m *driver.Matmul, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("product %+v: %w", *m, err)
}

// mostAlignment is the most bytes that an address is known to be a multiple of: more does not
// matter to the library.
const mostAlignment = 16

// alignment is what an address is a multiple of.
func alignment(at uint64) int { return int(min(at&-at, mostAlignment)) }

// stride is the distance from one row of a matrix to the next, which a matrix of one row
// need not have.
func stride(t tensorops.Tensor) int { return max(t.Stride(), t.Cols()) }

// roundedStride is that of a matrix in bfloat16: each row begins at a multiple of 16 bytes,
// as tensor cores like it.
func roundedStride(t tensorops.Tensor) int { return (t.Cols() + 7) / 8 * 8 }

// roundings are the last A and the last B of products that follow each other, in bfloat16.
// What the products write is all that changes meanwhile.
type roundings [2]struct {
	of tensorops.Tensor
	at uint64
}

// address is where the library reads A or B: in a copy, if that has to be rounded, which is
// made in scratch memory unless there is one.
func (m *roundings) address(x *exec, o *tensorops.Op, which int) (uint64, error) {
	t := o.T[which]
	switch {
	case !o.Has(tensorops.FlagBF16):
		return address(t), nil
	case which == operandB && o.T[4].Valid():
		return address(o.T[4]), nil
	}
	for _, c := range m {
		if c.of.Valid() && address(c.of) == address(t) && c.of.Rows() == t.Rows() && c.of.Cols() == t.Cols() && c.of.Stride() == t.Stride() {
			return c.at, nil
		}
	}
	at, err := x.scratch(2 * t.Rows() * roundedStride(t))
	if err != nil {
		return 0, err
	}
	c := &m[which-operandA]
	c.of, c.at = t, at
	return at, roundTo(x, at, t)
}

// forget drops the copies of what has been written.
func (m *roundings) forget(written tensorops.Tensor) {
	for i := range m {
		if extentOf(m[i].of).meets(extentOf(written)) {
			m[i].of = tensorops.Tensor{}
		}
	}
}

// roundTo writes a matrix in bfloat16 to an address.
func roundTo(x *exec, to uint64, t tensorops.Tensor) error {
	if t.Len() == 0 {
		return nil
	}
	whole := aligned(address(t))
	if t.Rows() > 1 && t.Stride()%4 != 0 {
		whole = 0
	}
	g := x.over(ceil(t.Cols(), 4))
	g.threads = min(g.threads, rowThreads(4*t.Cols()))
	g.y = min(t.Rows(), maxGridY)
	return launch(x, "round_bf16", g, &copyArgs{to: to, from: address(t), rows: int64(t.Rows()), cols: int64(t.Cols()),
		toStride: int64(roundedStride(t)), fromStride: int64(t.Stride()), aligned: whole})
}
