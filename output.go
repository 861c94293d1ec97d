package troupe

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/actors"
	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tokenizer"
)

// Names in an output folder.
const (
	configFile  = "config.toml"
	metricsFile = "metrics.jsonl"
	trainerFile = "trainer.json"
	modelFile   = "config.json"
	tokensFile  = "tokenizer.json"
	lockFile    = ".lock"
	crashPrefix = ".tmp-" // of what a crash leaves of a file that was to be replaced
)

// TraceFile is the file of an output folder that holds the traced steps, one a line.
const TraceFile = "trace.jsonl"

// output is the folder of a run, locked.
type output struct {
	dir      string
	lock     *checkpoint.Lock
	store    *checkpoint.Store
	warnings []string
}

// openOutput locks the folder and checks that it is this run's to write to.
func openOutput(cfg *config.Config, fresh bool) (*output, error) {
	o := &output{dir: cfg.Run.Out}
	if err := o.admissible(cfg, fresh); err != nil {
		return nil, err
	}
	var err error
	if o.lock, err = checkpoint.LockDir(o.dir); err != nil {
		return nil, err
	}
	// Once more: another run may have come and gone before the lock.
	if err = o.admissible(cfg, fresh); err == nil {
		err = o.open()
	}
	if err != nil {
		return nil, errors.Join(err, o.lock.Unlock())
	}
	return o, nil
}

// open finds the checkpoints, and removes what a crash has left beside them.
func (o *output) open() (err error) {
	if o.store, err = checkpoint.OpenStore(checkpoint.OS(), o.dir); err == nil {
		err = o.store.Clean()
	}
	if err != nil {
		return fmt.Errorf("%w %s: %w", ErrOutput, o.dir, err)
	}
	return nil
}

// admissible refuses a folder that holds something else than this run.
func (o *output) admissible(cfg *config.Config, fresh bool) error {
	entries, err := os.ReadDir(o.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return cfg.Errorf("run.out", "%w %s: %v", ErrOutput, o.dir, err)
	}
	locked := false // by a run, now or before: it locks the folder first
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		switch {
		case e.Name() == lockFile:
			locked = true
		case !strings.HasPrefix(e.Name(), crashPrefix):
			names = append(names, e.Name())
		}
	}
	if len(names) == 0 {
		return nil
	}
	if fresh {
		return cfg.Errorf("run.out", "%w %s is not empty (%s) and a fresh start was asked for; choose another run.out or move the old run away", ErrOutput, o.dir, strings.Join(names[:min(3, len(names))], ", "))
	}
	text, err := os.ReadFile(filepath.Join(o.dir, configFile))
	if errors.Is(err, fs.ErrNotExist) {
		return cfg.Errorf("run.out", "%w %s holds %s and no %s: it is not a run's; choose another run.out", ErrOutput, o.dir, names[0], configFile)
	}
	if err != nil {
		return cfg.Errorf("run.out", "%w: %v", ErrOutput, err)
	}
	if !locked {
		return cfg.Errorf("run.out", "%w %s holds a %s that no run has written, since there is no %s; choose another run.out", ErrOutput, o.dir, configFile, lockFile)
	}
	return conflicts(cfg, filepath.Join(o.dir, configFile), text)
}

// conflicts compares a stored configuration with today's. What nobody set today
// and has a default that depends on the run's length is taken over.
func conflicts(cfg *config.Config, name string, text []byte) error {
	stored, err := config.Parse(name, text, nil, nil)
	if err != nil {
		return &SetupError{fmt.Errorf("%w: the stored configuration: %w", ErrOutput, err)}
	}
	if !cfg.IsSet("optimizer.warmup_steps") {
		cfg.Optimizer.WarmupSteps = stored.Optimizer.WarmupSteps
		if err := cfg.Validate(); err != nil {
			return err
		}
	}
	var errs []error
	for _, c := range config.ResumeConflicts(stored, cfg) {
		errs = append(errs, cfg.Errorf(c.Key, "%w %s belongs to a run with %s, now it is %s; go on with the old value, or choose another run.out", ErrOutput, filepath.Dir(name), c.A, c.B))
	}
	return errors.Join(errs...)
}

// resumed is what a run goes on from.
type resumed struct {
	ckpt      *checkpoint.Checkpoint
	state     actors.TrainerState
	tokenizer tokenizer.Tokenizer
}

// resume opens the newest intact checkpoint; nil when there is none.
func (o *output) resume() (*resumed, error) {
	ckpt, damaged, err := o.store.Newest()
	for _, d := range damaged {
		o.warnings = append(o.warnings, fmt.Sprintf("a damaged checkpoint is passed over: %v", d))
	}
	if errors.Is(err, checkpoint.ErrNone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r := &resumed{ckpt: ckpt}
	if err := r.read(); err != nil {
		return nil, errors.Join(fmt.Errorf("checkpoint %s: %w", ckpt.Dir(), err), ckpt.Close())
	}
	if len(damaged) > 0 {
		o.warnings = append(o.warnings, fmt.Sprintf("training goes on from step %d, the newest intact checkpoint", r.state.Step))
	}
	return r, nil
}

// read takes the trainer's state and the tokenizer.
func (r *resumed) read() error {
	b, err := r.ckpt.File(trainerFile)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &r.state); err != nil {
		return fmt.Errorf("%s: %w", trainerFile, err)
	}
	if v := r.state.FormatVersion; v != actors.TrainerStateVersion {
		return fmt.Errorf("%s: format version %d, this program reads %d", trainerFile, v, actors.TrainerStateVersion)
	}
	r.tokenizer, err = readTokenizer(r.ckpt)
	return err
}

// readTokenizer reads a checkpoint's tokenizer; nil without an error when it has
// none.
func readTokenizer(c *checkpoint.Checkpoint) (tokenizer.Tokenizer, error) {
	b, err := c.File(tokensFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t, err := tokenizer.Unmarshal(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", tokensFile, err)
	}
	return t, nil
}

// readModel reads the sizes of a checkpoint's model.
func readModel(c *checkpoint.Checkpoint) (stages.Config, error) {
	b, err := c.File(modelFile)
	if err != nil {
		return stages.Config{}, err
	}
	return stages.ParseHF(b)
}

// point sets the pointers to a checkpoint that the run goes on from: a crash may
// have come between the two, or the newest checkpoint is damaged.
func (o *output) point(state actors.TrainerState) error {
	if err := o.store.SetLast(int(state.Step)); err != nil {
		return err
	}
	if state.BestStep == 0 {
		return nil
	}
	if err := o.store.SetBest(int(state.BestStep)); !errors.Is(err, checkpoint.ErrNone) {
		return err
	}
	return nil // it was removed when a better one came, of which nothing is left
}

// find says where a checkpoint has a part of a parameter, which must have the
// model's shape. GPT-2's published files leave out a prefix of the names.
func find(c *checkpoint.Checkpoint, p *stages.Param, part string) (from *checkpoint.Tensors, name string, err error) {
	from, name = c.Model(), p.Name
	if part != "" {
		from, name = c.Optimizer(), part+"."+p.Name
	}
	info, ok := from.Info(name)
	if !ok {
		if short := strings.TrimPrefix(name, "transformer."); short != name {
			if info, ok = from.Info(short); ok {
				name = short
			}
		}
	}
	switch {
	case !ok:
		return nil, "", fmt.Errorf("%s: there is no tensor %q", c.Dir(), name)
	case !slices.Equal(info.Shape, p.Shape):
		return nil, "", fmt.Errorf("%s: tensor %q has shape %d, the model needs %d", c.Dir(), name, info.Shape, p.Shape)
	case !slices.Contains([]string{"F32", "F16", "BF16"}, info.DType):
		return nil, "", fmt.Errorf("%s: tensor %q is %s; F32, F16 and BF16 can be read", c.Dir(), name, info.DType)
	}
	return from, name, nil
}

// checkWeights makes sure that a checkpoint has a model's weights, and parts of
// the optimizer's state, before anything is changed for them.
func checkWeights(c *checkpoint.Checkpoint, m *stages.Model, parts []string) error {
	for _, p := range m.Params {
		for _, part := range append([]string{""}, parts...) {
			if _, _, err := find(c, p, part); err != nil {
				return err
			}
		}
	}
	return nil
}

// weights is the Source that reads a checkpoint.
func weights(c *checkpoint.Checkpoint) stages.Source {
	return func(p *stages.Param, part string, dst []float32) error {
		from, name, err := find(c, p, part)
		if err != nil {
			return err
		}
		return from.Float32(name, dst)
	}
}
