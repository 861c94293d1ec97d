package driver

import (
	"fmt"
	"unsafe"
)

// function is one of the driver's, by its place in names.
type function int

const (
	cuInit function = iota
	cuDriverGetVersion
	cuDeviceGetCount
	cuDeviceGet
	cuDeviceGetName
	cuDeviceTotalMem
	cuDeviceGetUUID
	cuDeviceGetAttribute
	cuDeviceCanAccessPeer
	cuDevicePrimaryCtxRetain
	cuDevicePrimaryCtxRelease
	cuCtxSetCurrent
	cuCtxEnablePeerAccess
	cuMemGetInfo
	cuMemAlloc
	cuMemFree
	cuMemHostAlloc
	cuMemFreeHost
	cuMemcpyHtoDAsync
	cuMemcpyDtoHAsync
	cuMemcpyDtoDAsync
	cuMemcpyPeerAsync
	cuMemsetD32Async
	cuStreamCreate
	cuStreamDestroy
	cuStreamSynchronize
	cuStreamWaitEvent
	cuStreamBeginCapture
	cuStreamEndCapture
	cuGraphInstantiateWithFlags
	cuGraphDestroy
	cuGraphLaunch
	cuGraphExecDestroy
	cuEventCreate
	cuEventDestroy
	cuEventRecord
	cuEventSynchronize
	cuModuleLoadData
	cuModuleUnload
	cuModuleGetFunction
	cuFuncSetAttribute
	cuLaunchKernel
	cuGetErrorName
	cuGetErrorString
)

// names are the functions' in the library. Some have a version of the interface behind.
var names = []string{
	cuInit:                      "cuInit",
	cuDriverGetVersion:          "cuDriverGetVersion",
	cuDeviceGetCount:            "cuDeviceGetCount",
	cuDeviceGet:                 "cuDeviceGet",
	cuDeviceGetName:             "cuDeviceGetName",
	cuDeviceTotalMem:            "cuDeviceTotalMem_v2",
	cuDeviceGetUUID:             "cuDeviceGetUuid",
	cuDeviceGetAttribute:        "cuDeviceGetAttribute",
	cuDeviceCanAccessPeer:       "cuDeviceCanAccessPeer",
	cuDevicePrimaryCtxRetain:    "cuDevicePrimaryCtxRetain",
	cuDevicePrimaryCtxRelease:   "cuDevicePrimaryCtxRelease_v2",
	cuCtxSetCurrent:             "cuCtxSetCurrent",
	cuCtxEnablePeerAccess:       "cuCtxEnablePeerAccess",
	cuMemGetInfo:                "cuMemGetInfo_v2",
	cuMemAlloc:                  "cuMemAlloc_v2",
	cuMemFree:                   "cuMemFree_v2",
	cuMemHostAlloc:              "cuMemHostAlloc",
	cuMemFreeHost:               "cuMemFreeHost",
	cuMemcpyHtoDAsync:           "cuMemcpyHtoDAsync_v2",
	cuMemcpyDtoHAsync:           "cuMemcpyDtoHAsync_v2",
	cuMemcpyDtoDAsync:           "cuMemcpyDtoDAsync_v2",
	cuMemcpyPeerAsync:           "cuMemcpyPeerAsync",
	cuMemsetD32Async:            "cuMemsetD32Async",
	cuStreamCreate:              "cuStreamCreate",
	cuStreamDestroy:             "cuStreamDestroy_v2",
	cuStreamSynchronize:         "cuStreamSynchronize",
	cuStreamWaitEvent:           "cuStreamWaitEvent",
	cuStreamBeginCapture:        "cuStreamBeginCapture_v2",
	cuStreamEndCapture:          "cuStreamEndCapture",
	cuGraphInstantiateWithFlags: "cuGraphInstantiateWithFlags",
	cuGraphDestroy:              "cuGraphDestroy",
	cuGraphLaunch:               "cuGraphLaunch",
	cuGraphExecDestroy:          "cuGraphExecDestroy",
	cuEventCreate:               "cuEventCreate",
	cuEventDestroy:              "cuEventDestroy_v2",
	cuEventRecord:               "cuEventRecord",
	cuEventSynchronize:          "cuEventSynchronize",
	cuModuleLoadData:            "cuModuleLoadData",
	cuModuleUnload:              "cuModuleUnload",
	cuModuleGetFunction:         "cuModuleGetFunction",
	cuFuncSetAttribute:          "cuFuncSetAttribute",
	cuLaunchKernel:              "cuLaunchKernel",
	cuGetErrorName:              "cuGetErrorName",
	cuGetErrorString:            "cuGetErrorString",
}

// Driver is the driver's library.
type Driver struct {
	library *library // nil: see Nowhere
	version int      // 12040 is 12.4
}

// Open opens the driver and initializes it.
func Open(l Libraries) (*Driver, error) {
	lib, err := openFirst("the driver's library", l.driverCandidates(), names)
	if err != nil {
		return nil, err
	}
	d := &Driver{library: lib}
	if err := d.do(cuInit, 0); err != nil {
		// Without a GPU the driver says so here.
		return nil, fmt.Errorf("%w: %s: %w", ErrUnavailable, lib.path, err)
	}
	var version int32
	if err := d.do(cuDriverGetVersion, uintptr(unsafe.Pointer(&version))); err != nil {
		return nil, err
	}
	d.version = int(version)
	return d, nil
}

// Path is the library's, as it was given to the loader.
func (d *Driver) Path() string { return d.library.path }

// Version is the newest CUDA that the driver knows.
func (d *Driver) Version() (major, minor int) { return d.version / 1000, d.version % 1000 / 10 }

// do calls a function and makes an error of its result.
//
//go:uintptrescapes
func (d *Driver) do(f function, args ...uintptr) error {
	if d.library == nil {
		return nil
	}
	if code := call(d.library.functions[f], args...); code != 0 {
		return d.failure(f, code)
	}
	return nil
}

func (d *Driver) failure(f function, code int32) error {
	e := &Error{Call: names[f], Code: int(code), Name: "CUresult"}
	var name, words *byte // in the library's memory
	if call(d.library.functions[cuGetErrorName], uintptr(code), uintptr(unsafe.Pointer(&name))) == 0 && name != nil {
		e.Name = text(name)
	}
	if call(d.library.functions[cuGetErrorString], uintptr(code), uintptr(unsafe.Pointer(&words))) == 0 {
		e.Text = text(words)
	}
	return e
}
