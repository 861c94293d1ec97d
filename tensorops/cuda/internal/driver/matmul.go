package driver

import (
	"errors"
	"unsafe"
)

// Matmul describes a product D = op(A)·op(B), plus D before or a bias, as cuBLASLt has it:
// matrices lie in memory by columns. It is all that an algorithm is
// chosen by: addresses count only by what they are multiples of.
type Matmul struct {
	M, N, K        int // D is M×N
	TransA, TransB bool
	LDA, LDB, LDD  int // elements from one column to the next
	Precision      Precision
	RoundD         bool // D is of bfloat16, for A and B of that, and so is a bias; else of float32
	Epilogue       Epilogue
	LDAux          int // of the matrix that GELUAuxBias writes before the GELU
	// What the addresses are multiples of, in bytes. That of a bias, or of sums, or of the GELU's
	// operand counts where the epilogue has it.
	AlignA, AlignB, AlignD, AlignBias, AlignAux int
}

// Precision is what A and B are multiplied in. All products are summed in float32.
type Precision uint8

const (
	Float32  Precision = iota
	TF32               // of float32, whose upper 19 bits are looked at
	BFloat16           // A and B are of bfloat16
)

// Epilogue is what is done with the product's elements: CUBLASLT_EPILOGUE_….
type Epilogue uint32

const (
	NoEpilogue  Epilogue = 1
	Bias        Epilogue = 4            // add element i of a vector to row i
	GELUAuxBias Epilogue = 32 | 128 | 4 // then write that to another matrix, and GELU's tanh form of it to D
	// Store the sums of A's elements over the depth, one for each row of D, or of B's, one for each of
	// D's columns, where else a bias is read.
	ColumnSumsA Epilogue = 256
	ColumnSumsB Epilogue = 512
)

// Values of the library's enumerations.
const (
	cudaR32F  = 0
	cudaR16BF = 14

	compute32F         = 68
	compute32FFastTF32 = 77

	descTransA     = 3
	descTransB     = 4
	descEpilogue   = 7
	descBiasAt     = 8
	descAuxAt      = 11
	descAuxLD      = 12
	prefWorkspace  = 1
	prefReductions = 3
	prefAlignA     = 5
	prefAlignB     = 6
	prefAlignC     = 7
	prefAlignD     = 8

	// reductionComputeType lets pieces of a sum go to the workspace in float32, to be added
	// by a kernel behind. No reduction at all is always allowed.
	reductionComputeType = 2
)

// MatmulPlan is a product with the algorithm for it. It is made once and run again and
// again, by one thread; running it allocates nothing.
type MatmulPlan struct {
	blas      *BLAS
	handle    BLASHandle
	desc      uintptr
	a, b, d   uintptr // layouts; C has D's
	chosen    heuristicResult
	epilogue  Epilogue
	workspace uintptr // bytes

	// What the library reads by an address lies here, in the plan, which lies on the heap;
	// and so do its arguments.
	alpha, beta   float32
	biasAt, auxAt Address // as the descriptor has them
	arguments     [16]uintptr
}

// heuristicResult is cublasLtMatmulHeuristicResult_t.
type heuristicResult struct {
	algorithm      [8]uint64
	workspaceBytes uintptr
	state          int32
	waves          float32
	reserved       [4]int32
}

// Plan returns the library's algorithm for a product, within the given workspace; nil if it has
// none.
//
// What it answers is a function of m, the library's version and the GPU: of the addresses
// it is told what m says, and of all ways to split a sum the one that adds the pieces in
// their order afterwards. So an element's bits don't depend on the run, nor on what else
// the GPU does: NVIDIA promises that of cublasLtMatmul with a workspace of the caller's
// (cuBLAS, "Results reproducibility").
func (b *BLAS) Plan(h BLASHandle, m *Matmul, workspaceBytes int) (p *MatmulPlan, err error) {
	p = &MatmulPlan{blas: b, handle: h, epilogue: m.Epilogue, workspace: uintptr(workspaceBytes), alpha: 1}
	if b.library == nil {
		return p, nil
	}
	defer func() {
		if err == nil && p.chosen.state == 0 {
			return
		}
		p.End()
		p = nil
		if IsUnsupported(err) {
			err = nil
		}
	}()
	if err := p.describe(m); err != nil {
		return p, err
	}
	var preference uintptr
	if err := b.do(cublasLtMatmulPreferenceCreate, uintptr(unsafe.Pointer(&preference))); err != nil {
		return p, err
	}
	p.chosen.state = statusNotSupported // until an algorithm is written over it
	err = b.prefer(preference, m, workspaceBytes)
	if err == nil {
		var count int32
		err = b.do(cublasLtMatmulAlgoGetHeuristic, uintptr(h), p.desc, p.a, p.b, p.d, p.d, preference,
			1, uintptr(unsafe.Pointer(&p.chosen)), uintptr(unsafe.Pointer(&count)))
		if count == 0 {
			p.chosen.state = statusNotSupported
		}
	}
	// A preference that is not destroyed is lost to the process, which nothing can be done about.
	_ = b.do(cublasLtMatmulPreferenceDestroy, preference)
	return p, err
}

// describe makes the descriptors.
func (p *MatmulPlan) describe(m *Matmul) error {
	compute, element := uintptr(compute32F), uintptr(cudaR32F)
	switch m.Precision {
	case TF32:
		compute = compute32FFastTF32
	case BFloat16:
		element = cudaR16BF
	}
	result := uintptr(cudaR32F)
	if m.RoundD {
		result = cudaR16BF
	}
	if err := p.blas.do(cublasLtMatmulDescCreate, uintptr(unsafe.Pointer(&p.desc)), compute, cudaR32F); err != nil {
		return err
	}
	transA, transB, epilogue := boolInt32(m.TransA), boolInt32(m.TransB), uint32(m.Epilogue)
	err := errors.Join(
		p.set(descTransA, unsafe.Pointer(&transA), 4),
		p.set(descTransB, unsafe.Pointer(&transB), 4),
		p.set(descEpilogue, unsafe.Pointer(&epilogue), 4),
	)
	if m.Epilogue != NoEpilogue {
		err = errors.Join(err, p.place(descBiasAt, &p.biasAt, anAddress(m.AlignBias)))
	}
	if m.Epilogue == GELUAuxBias {
		ld := int64(m.LDAux)
		err = errors.Join(err, p.set(descAuxLD, unsafe.Pointer(&ld), 8), p.place(descAuxAt, &p.auxAt, anAddress(m.AlignAux)))
	}
	for _, l := range []struct {
		to         *uintptr
		element    uintptr
		rows, cols int
		turned     bool
		ld         int
	}{
		{&p.a, element, m.M, m.K, m.TransA, m.LDA},
		{&p.b, element, m.K, m.N, m.TransB, m.LDB},
		{&p.d, result, m.M, m.N, false, m.LDD},
	} {
		if l.turned {
			l.rows, l.cols = l.cols, l.rows
		}
		err = errors.Join(err, p.blas.do(cublasLtMatrixLayoutCreate, uintptr(unsafe.Pointer(l.to)), l.element,
			uintptr(l.rows), uintptr(l.cols), uintptr(l.ld)))
	}
	return err
}

// anAddress is one that is a multiple of n bytes and of no more. The library looks at
// nothing else of it before the product is run.
func anAddress(alignment int) Address { return Address(1<<40 + alignment) }

// prefer says what an algorithm may take for granted and make use of.
func (b *BLAS) prefer(preference uintptr, m *Matmul, workspaceBytes int) error {
	bytes := uint64(workspaceBytes)
	err := b.do(cublasLtMatmulPreferenceSetAttribute, preference, prefWorkspace, uintptr(unsafe.Pointer(&bytes)), 8)
	for _, a := range []struct {
		attribute uintptr
		value     int
	}{{prefReductions, reductionComputeType}, {prefAlignA, m.AlignA}, {prefAlignB, m.AlignB}, {prefAlignC, m.AlignD}, {prefAlignD, m.AlignD}} {
		value := uint32(a.value)
		err = errors.Join(err, b.do(cublasLtMatmulPreferenceSetAttribute, preference, a.attribute, uintptr(unsafe.Pointer(&value)), 4))
	}
	return err
}

// set sets an attribute of the product's descriptor.
func (p *MatmulPlan) set(attribute uintptr, value unsafe.Pointer, bytes uintptr) error {
	return p.blas.do(cublasLtMatmulDescSetAttribute, p.desc, attribute, uintptr(value), bytes)
}

// place tells the descriptor where a bias or what the GELU is taken of lies, unless it
// knows: what it knows is held, in the plan.
func (p *MatmulPlan) place(attribute uintptr, held *Address, at Address) error {
	if *held == at {
		return nil
	}
	*held = at
	p.arguments = [16]uintptr{p.desc, attribute, uintptr(unsafe.Pointer(held)), 8}
	err := p.blas.do(cublasLtMatmulDescSetAttribute, p.arguments[:4]...)
	if err != nil {
		*held = 0
	}
	return err
}

// Places are the addresses of one run of a plan. Bias and Aux are those of its epilogue.
type Places struct {
	A, B, D, Bias, Aux Address
	Workspace          Address // of as many bytes as the plan was made with
}

// Run puts the product into a stream.
func (p *MatmulPlan) Run(at Places, accumulate bool, s Stream) error {
	if p.epilogue != NoEpilogue {
		if err := p.place(descBiasAt, &p.biasAt, at.Bias); err != nil {
			return err
		}
	}
	if p.epilogue == GELUAuxBias {
		if err := p.place(descAuxAt, &p.auxAt, at.Aux); err != nil {
			return err
		}
	}
	p.beta = 0
	if accumulate {
		p.beta = 1
	}
	p.arguments = [16]uintptr{uintptr(p.handle), p.desc, uintptr(unsafe.Pointer(&p.alpha)), uintptr(at.A), p.a, uintptr(at.B), p.b,
		uintptr(unsafe.Pointer(&p.beta)), uintptr(at.D), p.d, uintptr(at.D), p.d, uintptr(unsafe.Pointer(&p.chosen.algorithm)),
		uintptr(at.Workspace), p.workspace, uintptr(s)}
	return p.blas.do(cublasLtMatmul, p.arguments[:]...)
}

// End gives the descriptors back. What was put into streams runs all the same.
func (p *MatmulPlan) End() {
	// What cannot be given back is lost to the process, which nothing can be done about.
	if p.desc != 0 {
		_ = p.blas.do(cublasLtMatmulDescDestroy, p.desc)
	}
	for _, layout := range []uintptr{p.a, p.b, p.d} {
		if layout != 0 {
			_ = p.blas.do(cublasLtMatrixLayoutDestroy, layout)
		}
	}
	p.desc, p.a, p.b, p.d = 0, 0, 0, 0
}

func boolInt32(b bool) int32 { return int32(boolInt(b)) }
