package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/internal/host/sysinfo"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/telemetry/event"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// Steps is a real training run on random tokens that is paused between measurements.
type Steps struct {
	cfg       *config.Config
	dir       string
	run       *troupe.Run
	heldBytes int64 // memory of the process before the run
	done      int64 // steps
	gflop     float64
}

// Load returns a configuration with the given keys set.
type Load func(sets []string) (*config.Config, error)

// StartSteps starts a configuration's run with data and output in a temporary folder. It returns when the first step can start.
func StartSteps(ctx context.Context, load Load) (s *Steps, err error) {
	held := sysinfo.ResidentBytes()
	dir, err := os.MkdirTemp("", "engine-bench-")
	if err != nil {
		return nil, err
	}
	s = &Steps{dir: dir, heldBytes: held}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	tokens := filepath.Join(dir, "tokens")
	s.cfg, err = load([]string{
		fmt.Sprintf("run.out=%q", filepath.Join(dir, "run")), fmt.Sprintf("run.steps=%d", config.MaxSteps),
		"run.eval_every=0", "run.eval_batches=1", "run.checkpoint_every=0", "run.stall_after_s=0",
		fmt.Sprintf("data.train=[%q]", tokens), "data.val=[]", "data.val_fraction=0.5", "data.format=uint16", "data.tokenizer=bytes"})
	if err != nil {
		return s, err
	}
	if s.cfg.Model.From != "" {
		return s, s.cfg.Errorf("model.from", "a measurement uses random weights; set the model's sizes instead")
	}
	if err := writeTokens(tokens, s.cfg); err != nil {
		return s, err
	}
	p, err := s.Plan()
	if err != nil {
		return s, err
	}
	s.gflop = p.TokenFLOPs() * float64(s.tokens()) / 1e9
	if s.run, err = troupe.Start(context.WithoutCancel(ctx), s.cfg, troupe.Options{}); err != nil {
		return s, err
	}
	s.run.Pause()
	return s, s.still(ctx, noStep)
}

// noStep stands for no step.
const noStep = -1

// writeTokens writes random ids. Training reads one window of them after another, so a few are enough.
func writeTokens(path string, c *config.Config) error {
	const windows = 64
	vocab := min(sizes(c).Vocab, 1<<16)
	key := rng.NewKey(1, rng.StringStream("bench tokens"))
	ids := make([]byte, 0, 2*windows*(c.Model.Context+1))
	for i := range uint64(cap(ids) / 2) {
		ids = binary.LittleEndian.AppendUint16(ids, uint16(rng.Intn(key, 0, i, uint64(vocab))))
	}
	return os.WriteFile(path, ids, 0o600)
}

// Plan resolves the run's configuration.
func (s *Steps) Plan() (*plan.Plan, error) { return plan.Resolve(s.cfg, nil) }

// Info describes the run.
func (s *Steps) Info() StepsInfo {
	i, c := s.run.Info(), s.cfg
	return StepsInfo{Model: c.Run.Name, Family: c.Model.Family, Layers: c.Model.Layers, Hidden: c.Model.Hidden, Parameters: i.Parameters,
		Vocab:     i.Vocab,
		Sequences: c.Batch.Sequences, Context: c.Model.Context, Microbatches: i.Microbatches, Schedule: i.Schedule, Stages: i.Stages,
		Chunks: c.Pipeline.Chunks,
		DType:  c.Device.DType, Threads: i.Threads, Kernels: i.Kernels, TokensPerStep: s.tokens(), GFLOPPerStep: s.gflop}
}

// StepsInfo says what is measured.
type StepsInfo struct {
	Model         string  `json:"model"`
	Family        string  `json:"family"`
	Layers        int     `json:"layers"`
	Hidden        int     `json:"hidden"`
	Parameters    int64   `json:"parameters"`
	Vocab         int     `json:"vocab"`
	Sequences     int     `json:"sequences"`
	Context       int     `json:"context"`
	Microbatches  int     `json:"microbatches"`
	Schedule      string  `json:"schedule"`
	Stages        int     `json:"stages"`
	Chunks        int     `json:"chunks"`
	DType         string  `json:"dtype"`
	Threads       int     `json:"threads"`
	Kernels       string  `json:"kernels"`
	TokensPerStep int     `json:"tokens_per_step"`
	GFLOPPerStep  float64 `json:"gflop_per_step"` // of the model's arithmetic, with a token's experts, whatever is recomputed
}

func (s *Steps) tokens() int { return s.cfg.Batch.Sequences * s.cfg.Model.Context }

// Run trains at least n steps. It returns their number and the duration from the first order to the last weight's update.
func (s *Steps) Run(ctx context.Context, n int) (steps int, took time.Duration, err error) {
	from, began := s.done, time.Now()
	s.run.Resume()
	if n == 1 {
		s.run.Pause()
	}
	if err := s.still(ctx, from+int64(n)-1); err != nil {
		return 0, 0, err
	}
	return int(s.done - from), time.Since(began), nil
}

// still waits until the run pauses. It requests the pause when a step ends; the next step has started by then and is the last.
func (s *Steps) still(ctx context.Context, pauseAfter int64) error {
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case e, ok := <-s.run.Events():
			if !ok {
				_, err := s.run.Wait()
				return fmt.Errorf("the run failed: %w", err)
			}
			switch e := e.(type) {
			case troupe.StepEvent:
				if int64(e.Step) == pauseAfter {
					s.run.Pause()
				}
			case troupe.PauseEvent:
				if e.Paused {
					s.done = e.Step
					return s.rest(ctx)
				}
			}
		}
	}
}

// rest waits until every stage has updated its weights. A run pauses earlier, when the update is decided.
func (s *Steps) rest(ctx context.Context) error {
	for ; ; time.Sleep(restEvery) {
		if err := ctx.Err(); err != nil {
			return err
		}
		if s.resting() {
			return nil
		}
	}
}

// restEvery is the resolution of a step's end.
const restEvery = 200 * time.Microsecond

func (s *Steps) resting() bool {
	for _, a := range s.run.Status().Actors {
		if a.Rank >= 0 && (a.Step != s.done || a.Wait != event.WaitOrder) {
			return false
		}
	}
	return true
}

// StepsResult is the speed of training and its use of memory.
type StepsResult struct {
	StepsInfo
	Steps      int     `json:"steps"`       // measured
	MS         Summary `json:"ms"`          // of a step
	HostCPUMS  float64 `json:"host_cpu_ms"` // mean processor time of a step; 0: unknown
	TokensPerS Summary `json:"tokens_per_s"`
	GFLOPS     Summary `json:"gflops"`
	Memory
}

// leastSteps is the minimum duration of a sample of steps, so that the time between two samples does not matter.
const leastSteps = 300 * time.Millisecond

// Measure trains for the given seconds.
func (s *Steps) Measure(ctx context.Context, seconds float64) (StepsResult, error) {
	from, spent := s.done, sysinfo.CPUTime()
	ms, err := sample(ctx, seconds, leastSteps, func(n int) (time.Duration, error) {
		steps, took, err := s.Run(ctx, n)
		return took * time.Duration(n) / time.Duration(max(steps, 1)), err
	})
	if err != nil {
		return StepsResult{}, err
	}
	spent = sysinfo.CPUTime() - spent
	return StepsResult{StepsInfo: s.Info(), Steps: int(s.done - from), MS: ms[0], HostCPUMS: milliseconds(spent) / float64(s.done-from),
		TokensPerS: ms[0].per(1000 * float64(s.tokens())),
		GFLOPS:     ms[0].per(1000 * s.gflop), Memory: s.Memory()}, nil
}

// Memory is the memory of the process in bytes; 0: unknown. For a GPU it also has the peak of tensors in the GPU's memory, and
// the memory taken from the driver for them.
type Memory struct {
	HeldBytes        int64 `json:"held_bytes"` // before the run
	PeakBytes        int64 `json:"peak_bytes"` // the peak so far, less HeldBytes
	DevicePeakBytes  int64 `json:"device_peak_bytes,omitempty"`
	DeviceTakenBytes int64 `json:"device_taken_bytes,omitempty"`

	GPUs []cuda.Work `json:"gpus,omitempty"` // the work of each GPU so far
}

// Memory returns the memory that the run has used so far.
func (s *Steps) Memory() Memory {
	var m Memory
	if peak := sysinfo.PeakBytes(); peak != 0 && s.heldBytes != 0 {
		m.HeldBytes, m.PeakBytes = s.heldBytes, peak-s.heldBytes
	}
	onGPU := s.run.Memory("cuda")
	m.DevicePeakBytes, m.DeviceTakenBytes = onGPU.Peak, onGPU.Taken
	m.GPUs = s.run.GPUWork()
	return m
}

// Close ends the run, without a checkpoint, and removes the folder.
func (s *Steps) Close() error {
	var err error
	if s.run != nil {
		s.run.Kill()
		if _, err = s.run.Wait(); errors.Is(err, actors.ErrKilled) {
			err = nil
		}
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}
