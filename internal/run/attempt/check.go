package attempt

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/stages"
)

// Check checks whether this machine can run a configuration, and whether its folder has a run that it can resume, without
// reading the data.
func Check(cfg *config.Config) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	gpu, _ := device.ResolveAuto(context.Background(), cfg, false)
	cfg = cfg.WithAutoGPU(gpu)
	var gpus []device.GPU
	var path string
	set, err := device.OpenSet(cfg)
	if err == nil {
		gpus, path = set.GPUs(), set.GPUPath()
		set.Close()
	}
	return errors.Join(err, check(cfg, func(p *plan.Plan) error {
		p.SetKernels(path)
		_, err := p.CheckMemory(gpus)
		return errors.Join(err, checkBefore(p), rundir.Check(p.Config()))
	}))
}

// CheckElsewhere is Check for other machines: each rank has its own device with deviceBytes of memory for tensors; 0: do
// not check the memory.
func CheckElsewhere(cfg *config.Config, deviceBytes int64) error {
	if err := cfg.Validate(); err != nil {
		return err
	}
	return check(cfg.WithAutoGPU(false), func(p *plan.Plan) error { return p.CheckDeviceMemory(deviceBytes) })
}

// checkBefore is plan.CheckBefore, unless the run's folder has the result of this loss already.
func checkBefore(p *plan.Plan) error {
	result := rundir.ReferenceFile
	if p.Config().Distill.From != "" {
		result = rundir.TeacherFile
	}
	if _, err := os.Stat(filepath.Join(p.Config().Run.Out, result)); err == nil {
		return nil
	}
	return p.CheckBefore()
}

func check(cfg *config.Config, memory func(*plan.Plan) error) (err error) {
	var missing error
	if cfg.Text() { // other data are opened with the model
		_, _, _, missing = corpus.Files(cfg)
	}
	cfg, ckpt, err := plan.LoadFrom(cfg)
	if err != nil {
		return errors.Join(missing, err)
	}
	if ckpt != nil {
		defer func() { err = errors.Join(err, ckpt.Close()) }()
	}
	var from stages.Config
	if ckpt != nil {
		from, err = plan.ReadModel(ckpt)
	}
	vocab, vocabErr := plan.VocabOf(cfg)
	if err = errors.Join(vocabErr, err); err == nil {
		from.Fields, err = plan.FieldsOf(cfg, vocab)
	}
	if err != nil {
		return errors.Join(missing, err)
	}
	p, err := plan.New(cfg, vocab, from)
	if err == nil && ckpt != nil {
		err = plan.WholeBase(ckpt)
	}
	if err == nil && ckpt != nil {
		err = plan.CheckWeights(ckpt, p.Model(), nil)
	}
	if err == nil {
		err = memory(p)
	}
	return errors.Join(missing, err)
}
