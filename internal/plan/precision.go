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

// SetPrecision puts a run's types into a stage's options.
func SetPrecision(o *stages.Options, c *config.Config) { setPrecision(o, c.Device, c.Language()) }

func setPrecision(o *stages.Options, d config.Device, language bool) {
	o.BF16, o.Residual = d.DType == bfloat16, tensorops.Float32
	if o.BF16 && d.Residual == bfloat16 && language {
		o.Residual = tensorops.BFloat16
	}
}

// Precision is that of the run that a checkpoint is from, or of the given dtype where that is
// not empty. A model of nobody's run is computed in float32.
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
