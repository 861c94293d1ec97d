package driver

import (
	"errors"
	"fmt"
	"unsafe"
)

// Functions of cuBLASLt, the library for matrix products.
const (
	cublasLtCreate function = iota
	cublasLtDestroy
	cublasLtGetVersion
	cublasLtMatmulDescCreate
	cublasLtMatmulDescSetAttribute
	cublasLtMatmulDescDestroy
	cublasLtMatrixLayoutCreate
	cublasLtMatrixLayoutDestroy
	cublasLtMatmulPreferenceCreate
	cublasLtMatmulPreferenceSetAttribute
	cublasLtMatmulPreferenceDestroy
	cublasLtMatmulAlgoGetHeuristic
	cublasLtMatmul
)

var blasNames = []string{
	cublasLtCreate:                       "cublasLtCreate",
	cublasLtDestroy:                      "cublasLtDestroy",
	cublasLtGetVersion:                   "cublasLtGetVersion",
	cublasLtMatmulDescCreate:             "cublasLtMatmulDescCreate",
	cublasLtMatmulDescSetAttribute:       "cublasLtMatmulDescSetAttribute",
	cublasLtMatmulDescDestroy:            "cublasLtMatmulDescDestroy",
	cublasLtMatrixLayoutCreate:           "cublasLtMatrixLayoutCreate",
	cublasLtMatrixLayoutDestroy:          "cublasLtMatrixLayoutDestroy",
	cublasLtMatmulPreferenceCreate:       "cublasLtMatmulPreferenceCreate",
	cublasLtMatmulPreferenceSetAttribute: "cublasLtMatmulPreferenceSetAttribute",
	cublasLtMatmulPreferenceDestroy:      "cublasLtMatmulPreferenceDestroy",
	cublasLtMatmulAlgoGetHeuristic:       "cublasLtMatmulAlgoGetHeuristic",
	cublasLtMatmul:                       "cublasLtMatmul",
}

// oldestBLAS is the oldest version that has all that is asked of it: the GELU of a product
// along with what it was taken of.
const oldestBLAS = 11_04_00

// BLAS is cuBLASLt's library.
type BLAS struct {
	library *library // nil: see BLASNowhere
	version int      // 120903 is 12.9.3; it is not CUDA's, though the major versions agree
}

// OpenBLAS opens cuBLASLt. Given the choice it takes one that is no newer than the
// driver's major version of CUDA.
func OpenBLAS(l Libraries, driverMajor int) (*BLAS, error) {
	if l.BLAS == None {
		return nil, fmt.Errorf("%w: cuBLASLt is disabled", ErrUnavailable)
	}
	lib, err := openFirst("cuBLASLt, the library for matrix products,", l.blasCandidates(driverMajor), blasNames)
	if err != nil {
		if l.BLAS == "" && unavailable == "" {
			err = fmt.Errorf("%w%s", err, nowhere("nvidia-cublas-cu12"))
		}
		return nil, err
	}
	b := &BLAS{library: lib, version: int(call(lib.functions[cublasLtGetVersion]))}
	if b.version < oldestBLAS {
		major, minor := b.Version()
		return nil, fmt.Errorf("%w: %s is cuBLASLt %d.%d, too old: use %d.%d or later",
			ErrUnavailable, lib.path, major, minor, oldestBLAS/10000, oldestBLAS/100%100)
	}
	return b, nil
}

// Path is the library's, as it was given to the loader.
func (b *BLAS) Path() string { return b.library.path }

// Version is the library's own.
func (b *BLAS) Version() (major, minor int) { return b.version / 10000, b.version / 100 % 100 }

// oldestSums is the oldest version that is asked for column sums along with a product. Some before
// have been seen to reach past matrices with them.
const oldestSums = 12_00_00

// SumsColumns reports whether this version of the library can compute column sums together with a product.
func (b *BLAS) SumsColumns() bool { return b.version >= oldestSums }

// BLASHandle is the library's state for one context.
type BLASHandle uintptr

// Create makes the state for the thread's context.
func (b *BLAS) Create() (BLASHandle, error) {
	var h BLASHandle
	err := b.do(cublasLtCreate, uintptr(unsafe.Pointer(&h)))
	return h, err
}

// Destroy gives it back.
func (b *BLAS) Destroy(h BLASHandle) error { return b.do(cublasLtDestroy, uintptr(h)) }

// NeedsBLAS reports whether cuBLASLt has to be there: its path is given.
func (l Libraries) NeedsBLAS() bool { return l.BLAS != "" && l.BLAS != None }

// do calls a function and makes an error of its result.
//
//go:uintptrescapes
func (b *BLAS) do(f function, args ...uintptr) error {
	if b.library == nil {
		return nil
	}
	code := call(b.library.functions[f], args...)
	if code == 0 {
		return nil
	}
	e := &Error{Call: blasNames[f], Code: int(code), Name: "cublasStatus_t"}
	if name, ok := blasStatuses[code]; ok {
		e.Name = name
	}
	return e
}

// Statuses that say what the library does not do, rather than what went wrong.
const (
	statusInvalidValue = 7
	statusArchMismatch = 8
	statusNotSupported = 15
)

// blasStatuses names the results by number.
var blasStatuses = map[int32]string{
	1: "CUBLAS_STATUS_NOT_INITIALIZED", 3: "CUBLAS_STATUS_ALLOC_FAILED", statusInvalidValue: "CUBLAS_STATUS_INVALID_VALUE",
	statusArchMismatch: "CUBLAS_STATUS_ARCH_MISMATCH", 11: "CUBLAS_STATUS_MAPPING_ERROR", 13: "CUBLAS_STATUS_EXECUTION_FAILED",
	14: "CUBLAS_STATUS_INTERNAL_ERROR", statusNotSupported: "CUBLAS_STATUS_NOT_SUPPORTED", 16: "CUBLAS_STATUS_LICENSE_ERROR",
}

// IsUnsupported reports whether cuBLASLt refused a product that it has no algorithm for. It
// calls some of those invalid: a combination of types, strides and epilogue.
func IsUnsupported(err error) bool {
	if err == nil {
		return false
	}
	var e *Error
	return errors.As(err, &e) && (e.Call == blasNames[cublasLtMatmulAlgoGetHeuristic] || e.Call == blasNames[cublasLtMatmul]) &&
		(e.Code == statusInvalidValue || e.Code == statusArchMismatch || e.Code == statusNotSupported)
}
