package device

import (
	"os"
	"strings"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/sysinfo"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// Device is a device that a run or a model computes on.
type Device interface {
	tensorops.Device
	// Threads is how many actions, or parts of one, it computes at a time.
	Threads() int
	// FastBF16 reports whether bfloat16 products are faster than float32's.
	FastBF16() bool
	// TakenBy is the most tensor memory that streams of each name have taken at a time.
	TakenBy() map[string]int64
}

// Open opens the configured device. It rejects a configuration whose ranks use devices of several kinds.
func Open(cfg *config.Config) (Device, error) {
	for r := range cfg.Pipeline.Stages {
		if KindOf(cfg, r) != KindOf(cfg, 0) {
			return nil, cfg.Errorf("device.ranks",
				"ranks 0 and %d compute on %s and %s, but this needs a single device; give one kind, or leave the key out", r, KindOf(cfg, 0),
				KindOf(cfg, r))
		}
	}
	return openKind(cfg, KindOf(cfg, 0), max(0, cfg.Device.OrdinalOf(0)))
}

// openKind makes a configuration's device of a kind; ordinal says which GPU.
func openKind(cfg *config.Config, kind string, ordinal int) (Device, error) {
	key := "device.kernels"
	if kind == CUDA {
		key = Key(cfg)
	}
	d, err := OpenKind(Options{Kind: kind, Ordinal: ordinal, Threads: cfg.Device.Threads, Kernels: cfg.Device.Kernels, TF32: cfg.Device.TF32})
	if err != nil {
		return nil, cfg.Errorf(key, "%w", err)
	}
	return d, nil
}

// Kinds of devices.
const (
	CPU  = "cpu"
	CUDA = "cuda"
)

// KindOf returns the kind of a rank's device: CUDA or CPU. "auto" is the CPU unless ResolveAuto has chosen a GPU.
func KindOf(cfg *config.Config, rank int) string {
	switch kind := cfg.Device.KindOf(rank); {
	case kind == CUDA, kind == auto && cfg.AutoGPU():
		return CUDA
	default:
		return CPU
	}
}

// Options selects a device.
type Options struct {
	Kind    string // CUDA; else the CPU
	Ordinal int    // of a GPU
	Threads int    // of the CPU; 0: all cores
	Kernels string // of the CPU; "": the best
	TF32    bool   // of a GPU
}

// OpenKind opens a device of the given kind.
func OpenKind(o Options) (Device, error) {
	if o.Kind == CUDA {
		options := CUDAOptions()
		options.Device, options.TF32 = o.Ordinal, o.TF32
		d, err := cuda.New(options)
		if err != nil {
			return nil, err // not d: a typed nil would not be nil
		}
		return gpu{d}, nil
	}
	d, err := cpu.New(cpu.Options{Threads: o.Threads, Kernels: o.Kernels})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// CUDAOptions returns the options that a GPU is opened with. If CUDA's libraries are in an unusual place, environment variables
// name them: TROUPE_LIBCUDA, TROUPE_LIBNVRTC (may be cuda.NoNVRTC) and TROUPE_LIBCUBLASLT (may be cuda.NoBLAS). TROUPE_GELU is
// for measurements: "fused" computes GELUs within products and "apart" after them, whatever the GPU's rule is.
func CUDAOptions() cuda.Options {
	gelu := map[string]cuda.GELU{"fused": cuda.GELUFused, "apart": cuda.GELUApart}[os.Getenv("TROUPE_GELU")]
	return cuda.Options{Driver: os.Getenv("TROUPE_LIBCUDA"), NVRTC: os.Getenv("TROUPE_LIBNVRTC"), BLAS: os.Getenv("TROUPE_LIBCUBLASLT"),
		GELU: gelu}
}

// Work returns the counts of work that a GPU has submitted to its streams; false: the device is not a GPU.
func Work(d Device) (cuda.Work, bool) {
	g, ok := d.(gpu)
	if !ok {
		return cuda.Work{}, false
	}
	return g.Work(), true
}

// gpu is a device whose streams share it.
type gpu struct{ *cuda.Device }

// Threads returns 1: concurrent work shares the one device.
func (gpu) Threads() int { return 1 }

// FastBF16 reports whether products in bfloat16 are faster than in float32, as they are on tensor cores.
func (g gpu) FastBF16() bool { return g.HasBLAS() || g.MultipliesBF16() }

// KnowsTF32 reports whether a device computes with TensorFloat-32 on request. Devices other
// than GPUs do not support it.
func KnowsTF32(d Device) bool {
	g, ok := d.(gpu)
	return !ok || g.HasBLAS()
}

// WithTF32 returns the kernel path of a GPU that is opened with or without TensorFloat-32. Only cuBLASLt uses it.
func WithTF32(path string, tf32 bool) string {
	if tf32 && strings.Contains(path, "-cublaslt-") {
		path += "-tf32"
	}
	return path
}

// TakesLate reports whether a device takes memory from the system when it is written first, not when it is allocated.
func TakesLate(d Device) bool {
	_, ok := d.(gpu)
	return !ok
}

// FreeBytes returns the memory available for tensors on a device; 0: unknown.
func FreeBytes(d Device) int64 {
	if g, ok := d.(gpu); ok {
		free, err := g.FreeBytes()
		if err != nil {
			return 0 // what is wrong with the device, its first list says
		}
		return free
	}
	return HostFreeBytes()
}

// HostFreeBytes returns this machine's available memory; 0: unknown. Tests replace it.
var HostFreeBytes = sysinfo.MemoryBytes
