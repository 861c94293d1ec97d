package cuda

import (
	"fmt"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// byLibrary has the library compute the product, and with it the next operation if that is the GELU of
// it, or the column sums of what it multiplies. It returns how many operations that were; 0 if there
// is no algorithm.
func (p product) byLibrary(x *exec, ops []tensorops.Op, made *roundings) (int, error) {
	if len(ops) > 1 {
		var ok bool
		var err error
		next := &ops[1]
		if sums := p.sumsColumns(next); sums != driver.NoEpilogue {
			ok, err = p.withColSum(x, next.ColSum().Sum, sums, made)
		} else if x.fuseGELU && p.goesInto(next) {
			ok, err = p.withGELU(x, next.GELU().Y, made)
		}
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
	c, bias := p.C, p.Bias
	m := p.matmul(x, stride(c), alignment(address(c)))
	m.RoundD = isBFloat16(c)
	// The library takes a bias of the type of D. To rows of bfloat16 that do not begin at multiples of 16 bytes it
	// adds it apart, after it has rounded the product, which loses what the two have in common.
	beside := m.RoundD && bias.Valid() && (!isBFloat16(bias) || !inSteps(c))
	if beside {
		m.RoundD, m.LDD, m.AlignD = false, p.n, mostAlignment
	}
	widens := !m.RoundD && isBFloat16(bias)
	if bias.Valid() {
		m.Epilogue, m.AlignBias = driver.Bias, alignment(address(bias))
	}
	if widens {
		m.AlignBias = mostAlignment
	}
	plan, err := x.blas.plan(&m)
	if plan == nil || err != nil {
		return false, failedProduct(x, &m, err)
	}
	if beside {
		c, err = x.float32Like(p.C)
	}
	if widens {
		bias, err = x.widened(bias)
	}
	if err != nil {
		return false, err
	}
	done, err := p.run(x, plan, &m, driver.Places{D: driver.Address(address(c)), Bias: driver.Address(address(bias))}, made)
	if !done || err != nil || !beside {
		return done, err
	}
	return true, copyTo(x, p.C, c)
}

// auxRow is what rows of the matrix that a GELU is taken of have to be multiples of.
const auxRow = 8

// goesInto reports whether an operation is the GELU of the product, and the library may
// do both. What it is asked for, CUBLASLT_EPILOGUE_GELU_AUX_BIAS, is by NVIDIA's documentation
// the form of the hyperbolic tangent, as the kernel's is. The form of the error function differs
// from that by up to 5e-4, hundreds of times optest's tolerance: its case "gelu/behind a
// product" would show it.
func (p product) goesInto(o *tensorops.Op) bool {
	if o.Kind != tensorops.KindGELU {
		return false
	}
	a := o.GELU()
	return p.Bias.Valid() && !isBFloat16(p.Bias) && !isBFloat16(p.C) && !isBFloat16(a.Y) && p.C.Contiguous() && p.n%auxRow == 0 &&
		address(a.X) == address(p.C) && a.X.Len() == p.C.Len() && address(a.Y) != address(p.C)
}

// withGELU writes the product with its bias to C and the GELU of that to y.
func (p product) withGELU(x *exec, y tensorops.Tensor, made *roundings) (bool, error) {
	c, bias, to := address(p.C), address(p.Bias), address(y)
	m := p.matmul(x, p.n, alignment(to))
	m.Epilogue, m.AlignBias = driver.GELUAuxBias, alignment(bias)
	m.LDAux, m.AlignAux = p.n, alignment(c)
	plan, err := x.blas.plan(&m)
	if plan == nil || err != nil {
		return false, failedProduct(x, &m, err)
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

// sumsColumns is the epilogue that makes column sums along with the product, if an operation is those of
// the matrix that a weight's gradient is made of, a bias's gradient. The library adds up what it
// multiplies: so that has to be read where it lies, as it is.
func (p product) sumsColumns(o *tensorops.Op) driver.Epilogue {
	if o.Kind != tensorops.KindColSum || !p.BF16 || !p.TransA || p.TransB || p.Bias.Valid() || isBFloat16(p.C) {
		return driver.NoEpilogue
	}
	a := o.ColSum()
	if a.X.Len() == 0 || !p.apartFrom(a.Sum) {
		return driver.NoEpilogue
	}
	switch {
	case same(a.X, p.B) && p.operandB().inPlace():
		return driver.ColumnSumsA // B is the library's A
	case same(a.X, p.A) && p.operandA().inPlace():
		return driver.ColumnSumsB
	}
	return driver.NoEpilogue
}

// same reports whether two matrices are the same memory.
func same(a, b tensorops.Tensor) bool {
	return address(a) == address(b) && a.DType() == b.DType() && a.Rows() == b.Rows() && a.Cols() == b.Cols() && stride(a) == stride(b)
}

// withColSum is plain, and adds the column sums that an epilogue makes of what is multiplied to sum.
func (p product) withColSum(x *exec, sum tensorops.Tensor, sums driver.Epilogue, made *roundings) (bool, error) {
	if !x.blas.library.SumsColumns() {
		return false, nil
	}
	m := p.matmul(x, stride(p.C), alignment(address(p.C)))
	m.Epilogue, m.AlignBias = sums, mostAlignment
	plan, err := x.blas.plan(&m)
	if plan == nil || err != nil {
		return false, failedProduct(x, &m, err)
	}
	// It does not add to what is there.
	here, err := x.float32Like(sum)
	if err != nil {
		return false, err
	}
	done, err := p.run(x, plan, &m, driver.Places{D: driver.Address(address(p.C)), Bias: driver.Address(address(here))}, made)
	if !done || err != nil {
		return done, err
	}
	return true, addTo(x, sum, sum, here)
}

// apartFrom reports whether the product neither reads nor writes the memory of y.
func (p product) apartFrom(y tensorops.Tensor) bool {
	for _, t := range []tensorops.Tensor{p.C, p.A, p.B, p.Bias, p.Packed} {
		if extentOf(t).meets(extentOf(y)) {
			return false
		}
	}
	return true
}

// matmul is the product as the library is asked for it. The library
// takes matrices to lie by columns: what lies by rows is to it the transposed matrix, so it
// is asked for Cᵀ = op(B)ᵀ·op(A)ᵀ.
func (p product) matmul(x *exec, strideD, alignD int) driver.Matmul {
	m := driver.Matmul{
		M: p.n, N: p.m, K: p.k,
		TransA: p.TransB, TransB: p.TransA,
		LDD: strideD, AlignD: alignD,
		Epilogue: driver.NoEpilogue,
	}
	m.LDA, m.AlignA = p.operandB().layout()
	m.LDB, m.AlignB = p.operandA().layout()
	switch {
	case p.BF16:
		m.Precision = driver.BFloat16
	case x.blas.tf32:
		m.Precision = driver.TF32
	}
	return m
}

// operand is A or B of a product for the library.
type operand struct {
	of     tensorops.Tensor
	packed tensorops.Tensor // what Pack made of it; may be none
	bf16   bool             // to be read in bfloat16
	place  int              // in roundings
}

func (p product) operandA() operand { return operand{of: p.A, bf16: p.BF16} }

func (p product) operandB() operand {
	return operand{of: p.B, packed: p.Packed, bf16: p.BF16, place: 1}
}

// layout is how the library finds the operand: the distance of its rows, and what its
// address is a multiple of. What is rounded first lies at the beginning of a buffer.
func (o operand) layout() (distance, align int) {
	switch {
	case !o.bf16 || o.inPlace():
		return stride(o.of), alignment(address(o.of))
	case o.packed.Valid():
		return roundedStride(o.of), alignment(address(o.packed))
	}
	return roundedStride(o.of), mostAlignment
}

// inPlace reports whether the library reads the operand where it lies: it is bfloat16, and its
// rows begin at multiples of 16 bytes.
func (o operand) inPlace() bool { return isBFloat16(o.of) && inSteps(o.of) }

// inSteps reports whether the rows of a matrix begin at multiples of 16 bytes.
func inSteps(t tensorops.Tensor) bool {
	return address(t)%mostAlignment == 0 && t.DType().Size()*stride(t)%mostAlignment == 0
}

// run puts the product into the stream; false if the library has no algorithm for it after
// all.
func (p product) run(x *exec, plan *driver.MatmulPlan, m *driver.Matmul, at driver.Places, made *roundings) (bool, error) {
	a, err := made.address(x, p.operandA())
	if err != nil {
		return false, err
	}
	b, err := made.address(x, p.operandB())
	if err != nil {
		return false, err
	}
	at.A, at.B, at.Workspace = driver.Address(b), driver.Address(a), x.workspace
	err = plan.Run(at, p.Accumulate, x.stream)
	if driver.IsUnsupported(err) {
		x.blas.drop(m)
		return false, nil
	}
	return err == nil, failedProduct(x, m, err)
}

// failedProduct says which product an error is of, as the library has it. Where a kernel that was
// launched before has broken the context, all that the library says is that it can do nothing: the
// driver says what happened.
func failedProduct(x *exec, m *driver.Matmul, err error) error {
	if err == nil {
		return nil
	}
	if before := x.driver.WaitStream(x.stream); driver.IsLate(before) {
		err = fmt.Errorf("%w, after %w", err, before)
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
