package cuda

import (
	"strings"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
)

// Dry launches lists without a GPU, like a stream of a device, to find the device memory that they
// take besides the tensors: mainly scratch memory, such as operands that are rounded for a product.
type Dry struct {
	exec    exec
	blas    blas
	work    work
	staging staging
	memory  *tensorops.Memory
}

// An unknown GPU is assumed to be an H100.
const (
	dryTarget     = "sm_90"
	dryProcessors = 132
)

// NewDry makes a Dry for the kernels of a path, as Device.Path names them: the memory depends on
// whether cuBLASLt computes the products. An empty path stands for an unknown GPU with cuBLASLt.
func NewDry(path string) *Dry {
	d := &Dry{memory: tensorops.NewMemory(nowhere{}, 0)}
	none := driver.Nowhere()
	target := dryTarget
	if rest, ok := strings.CutPrefix(path, "cuda-"); ok {
		target, _, _ = strings.Cut(rest, "-")
	}
	d.blas = blas{plans: make(map[driver.Matmul]*driver.MatmulPlan)}
	if path == "" || strings.Contains(path, "-cublaslt-") {
		d.blas.library = driver.BLASNowhere()
	}
	d.blas.tf32 = strings.Contains(path, "-tf32")
	for gelu, name := range map[GELU]string{GELUFused: "-gelu-fused", GELUApart: "-gelu-apart"} {
		if strings.Contains(path, name) {
			d.blas.gelu = gelu
		}
	}
	d.staging = staging{driver: none}
	d.exec = exec{
		processors:  dryProcessors,
		tensorCores: multipliesBF16(target),
		driver:      none,
		modules:     &modules{driver: none, nowhere: true},
		graphs:      newGraphs(),
		temporary:   d.memory.NewArena("scratch"),
		staging:     &d.staging,
		work:        &d.work,
		blas:        &d.blas,
		fuseGELU:    d.blas.gelu.fuses(target),
	}
	return d
}

// nowhere gives out scratch memory that there is not.
type nowhere struct{}

func (nowhere) Alloc(*tensorops.Buffer) error { return nil }
func (nowhere) Free(*tensorops.Buffer)        {}

// Launch launches operations, whose tensors may belong to a dry stream. Operations without a
// kernel, and those that a device would refuse, take no memory.
func (d *Dry) Launch(ops []tensorops.Op) {
	d.staging.reset()
	for len(ops) > 0 {
		switch ops[0].Kind {
		case tensorops.KindUpload, tensorops.KindFetch, tensorops.KindCollective:
			ops = ops[1:]
			continue
		default:
		}
		d.exec.variables.used = 0
		n, err := d.exec.do(ops)
		if err != nil || n < 1 {
			d.staging.reset() // which a table may have filled
			n = 1
		}
		ops = ops[n:]
	}
}

// Bytes returns the memory taken, including what a stream always takes.
func (d *Dry) Bytes() int64 {
	bytes := d.memory.Stats().Taken + faultBytes + routeBytes + limitMasks*variableBytes
	if d.blas.isThere() {
		bytes += workspaceBytes
	}
	return bytes
}
