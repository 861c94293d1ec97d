package driver

import (
	"errors"
	"fmt"
	"unsafe"
)

// ErrUnavailable: a library of CUDA's is not there, or lacks a function.
var ErrUnavailable = errors.New("CUDA is not available")

// Error is a call that failed.
type Error struct {
	Call string // the function, such as cuMemAlloc_v2
	Code int    // CUresult, or nvrtcResult
	Name string // such as CUDA_ERROR_OUT_OF_MEMORY
	Text string // in the library's words, or empty
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%s: %s (%d)", e.Call, e.Name, e.Code)
	if e.Text != "" {
		s += ": " + e.Text
	}
	if e.late() {
		s += "; the error may belong to an earlier launch: set CUDA_LAUNCH_BLOCKING=1 in the environment to find out"
	}
	return s
}

// late reports whether the error is a kernel's that ran amiss, which whoever asks the driver
// for something next is told.
func (e *Error) late() bool {
	const illegalAddress, hardwareStackError, launchFailed = 700, 714, 719
	return e.Code == illegalAddress || hardwareStackError <= e.Code && e.Code <= launchFailed
}

// IsLate reports whether an error may be that of a kernel that was launched before: the context is broken.
func IsLate(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.late()
}

// Numbers of errors that callers branch on.
const (
	codeOutOfMemory        = 2
	codeNoDevice           = 100
	codePeerAlreadyEnabled = 704
)

// IsOutOfMemory reports whether the device has no more memory to give.
func IsOutOfMemory(err error) bool {
	var e *Error
	return errors.As(err, &e) && e.Code == codeOutOfMemory
}

// text copies a C string; nil gives none.
func text(p *byte) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}
