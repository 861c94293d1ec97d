package troupe

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
)

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
	if o.store, err = checkpoint.OpenStore(checkpoint.OS(), o.dir); err == nil {
		err = o.store.Clean()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("output folder %s: %w", o.dir, err), o.lock.Unlock())
	}
	return o, nil
}

// admissible refuses a folder that holds something else than this run.
func (o *output) admissible(cfg *config.Config, fresh bool) error {
	entries, err := os.ReadDir(o.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return cfg.Errorf("run.out", "%w %s: %w", ErrOutput, o.dir, err)
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		if e.Name() != lockFile {
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
		return cfg.Errorf("run.out", "%w: %w", ErrOutput, err)
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

// weights is the Source that reads a checkpoint, named as files do; GPT-2's
// published files leave out a prefix, which is allowed for.
func weights(c *checkpoint.Checkpoint) stages.Source {
	return func(p *stages.Param, part string, dst []float32) error {
		from, name := c.Model(), p.Name
		if part != "" {
			from, name = c.Optimizer(), part+"."+p.Name
		}
		info, ok := from.Info(name)
		if !ok {
			if short, found := strings.CutPrefix(name, "transformer."); found {
				if info, ok = from.Info(short); ok {
					name = short
				}
			}
		}
		if !ok {
			return fmt.Errorf("%s: there is no tensor %q", c.Dir(), name)
		}
		if !sameShape(info.Shape, p.Shape) {
			return fmt.Errorf("%s: tensor %q has shape %d, the model needs %d", c.Dir(), name, info.Shape, p.Shape)
		}
		return from.Float32(name, dst)
	}
}

func sameShape(a, b []int) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}
