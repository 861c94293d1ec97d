package plan

import (
	"fmt"
	"slices"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/optstate"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// stateTypes are the values of optimizer.state_dtype.
var stateTypes = map[string]tensorops.DType{"float32": tensorops.Float32, bfloat16: tensorops.BFloat16, config.StateInt8: tensorops.Uint8}

// checkState checks that a narrow state is in host memory, and that blocks of 8 bits are whole.
func (p *Plan) checkState() error {
	c := p.cfg
	if !c.NarrowState() {
		return nil
	}
	of := c.Optimizer.StateDType
	if r, found := p.gpuStage(); found {
		return c.Errorf("optimizer.state_dtype", "%q computes only on the CPU, but stage %d is on a GPU; set %s = \"cpu\", or "+
			"state_dtype = \"float32\"", of, r, device.Key(c))
	}
	if of != config.StateInt8 {
		return nil
	}
	if n := slices.Max(c.Parallel.Tensor); n > 1 {
		return c.Errorf("optimizer.state_dtype", "%q has blocks of %d weights, which parallel.tensor = %d would split; set tensor = 1, or "+
			"state_dtype = \"bfloat16\"", of, tensorops.StateBlock, n)
	}
	return nil
}

// codes is the type in a checkpoint of a part of the optimizer's state in 8 bits.
const codes = "U8"

// scalesName returns the name of the tensor with the scales of a part of the state in 8 bits.
func scalesName(p *stages.Param, part string) string { return stages.ScalePart(part) + "." + p.Name }

// findWhole returns the names of a checkpoint's tensors that have a parameter, or a part of its optimizer state, whose scales are there,
// too: one, or two of a weight in MXFP4.
func findWhole(c *checkpoint.Checkpoint, p *stages.Param, stored stages.StoredPart, part string) (names []string, err error) {
	if stored.MXFP4 {
		codes, scales, err := findMXFP4(c, stored)
		return []string{codes, scales}, err
	}
	_, name, err := find(c, stored, part)
	if err == nil {
		err = findScales(c, p, name, part)
	}
	return []string{name}, err
}

// findScales makes sure that a checkpoint has the scales of a part of the state, if it has that in 8 bits.
func findScales(c *checkpoint.Checkpoint, p *stages.Param, stored, part string) error {
	from := c.Optimizer()
	if info, _ := from.Info(stored); part == "" || info.DType != codes {
		return nil
	}
	name := scalesName(p, part)
	info, ok := from.Info(name)
	if !ok {
		return fmt.Errorf("%s: tensor %q is missing, which has the scales of %q", c.Dir(), name, stored)
	}
	if want := []int{optstate.Scales(wholeLen(p))}; info.DType != "F32" || !slices.Equal(info.Shape, want) {
		return fmt.Errorf("%s: tensor %q has type %s and shape %d, but the state needs F32 and %d", from.Path(name), name, info.DType,
			info.Shape, want)
	}
	return nil
}

func wholeLen(p *stages.Param) int { return elementsOf(p.Whole) }

func elementsOf(shape []int) int {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return n
}

// readState gets what a tensor has of a part of the state in 8 bits, or of the slice of it that a rank has.
func readState(c *checkpoint.Checkpoint, name string, p *stages.Param, stored stages.StoredPart, part string, dst []float32) error {
	from := c.Optimizer()
	if err := findScales(c, p, name, part); err != nil {
		return err
	}
	all, err := from.Bytes(name)
	if err != nil {
		return err
	}
	scales := make([]float32, optstate.Scales(wholeLen(p)))
	if err := from.Float32(scalesName(p, part), scales); err != nil {
		return err
	}
	own := make([]byte, stored.Len)
	stored.Runs(stored.First, stored.First+stored.Len, func(param, at, n, step int) {
		for i := range n {
			own[param-stored.First+i] = all[at+i*step]
		}
	})
	p.Slice.Runs(p.Whole, func(at, wholeAt, n int) {
		if lo, hi := max(wholeAt, stored.First), min(wholeAt+n, stored.First+stored.Len); lo < hi {
			optstate.DecodePart(dst[at+lo-wholeAt:at+hi-wholeAt], own[lo-stored.First:], scales, lo, stages.IsRoot(part))
		}
	})
	return nil
}
