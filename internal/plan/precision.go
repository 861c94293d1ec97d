package plan

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// bfloat16 is the value of device.dtype and device.residual.
const bfloat16 = "bfloat16"

// SetPrecision sets the number types of a configuration in a stage's options.
func SetPrecision(o *stages.Options, c *config.Config) {
	setPrecision(o, c.Device, c.Language())
	o.FrozenDType = frozenType(c)
}

// HeldType returns the type in which a run's stages hold the weights of a base's linear layers.
func HeldType(c *config.Config) tensorops.DType {
	if of := frozenType(c); of != tensorops.Float32 || c.Device.DType != bfloat16 {
		return of
	}
	return tensorops.BFloat16
}

// frozenType returns the type of model.frozen_dtype.
func frozenType(c *config.Config) tensorops.DType {
	switch of := c.Model.FrozenDType; {
	case of == config.FrozenInt8:
		return tensorops.Int8
	case of == config.FrozenNF4:
		return tensorops.NF4
	case of == bfloat16, of == config.FrozenAuto && c.LoRA() != nil:
		return tensorops.BFloat16
	}
	return tensorops.Float32
}

func setPrecision(o *stages.Options, d config.Device, language bool) {
	o.BF16, o.Residual = d.DType == bfloat16, tensorops.Float32
	if o.BF16 && d.Residual == bfloat16 && language {
		o.Residual = tensorops.BFloat16
	}
}

// Precision returns options with the number types of the run that wrote a checkpoint, or with dtype if that is
// not empty. A checkpoint without a run is computed in float32.
func Precision(ckpt *checkpoint.Checkpoint, dtype string, language bool) (o stages.Options, err error) {
	d := config.Device{DType: dtype, Residual: dtype}
	text, err := ckpt.File(rundir.ConfigFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return o, err
	default:
		run, err := config.ParseStored(rundir.ConfigFile, text)
		if err != nil {
			return o, fmt.Errorf("the run's configuration: %w", err)
		}
		if dtype == "" || dtype == run.Device.DType {
			d = run.Device
		}
	}
	setPrecision(&o, d, language)
	return o, nil
}
