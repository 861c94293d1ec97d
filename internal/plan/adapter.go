package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/ggufmodel"
	"github.com/troupe-ml/troupe/internal/peft"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// BaseHash returns a hash of the weights in a checkpoint: of the names, types, shapes and bytes of all tensors. It does not depend
// on how these are divided into files.
func BaseHash(c *checkpoint.Checkpoint) (string, error) {
	t := c.Model()
	names := t.Names()
	slices.Sort(names)
	sums, errs := make([][sha256.Size]byte, len(names)), make([]error, len(names))
	var all sync.WaitGroup
	next := make(chan int)
	for range min(len(names), runtime.GOMAXPROCS(0)) {
		all.Go(func() {
			for i := range next {
				b, err := t.Bytes(names[i])
				sums[i], errs[i] = sha256.Sum256(b), err
				t.Forget(names[i])
			}
		})
	}
	for i := range names {
		next <- i
	}
	close(next)
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return "", err
	}
	whole := sha256.New()
	for i, name := range names {
		info, _ := t.Info(name)
		fmt.Fprintf(whole, "%q %s %v %x\n", name, info.DType, info.Shape, sums[i])
	}
	return hex.EncodeToString(whole.Sum(nil)), nil
}

// OpenBase opens the base of a checkpoint with an adapter, at the place that the checkpoint names or, if from is not empty, there.
// The weights must be those that the adapter was trained beside.
func OpenBase(c *checkpoint.Checkpoint, from string) (base *checkpoint.Checkpoint, a *rundir.Adapted, err error) {
	if a, err = rundir.ReadAdapted(c); err != nil || a == nil {
		return nil, a, err
	}
	if from == "" {
		from = a.Base.From
	}
	if base, err = ggufmodel.OpenAt(from); err != nil {
		return nil, a, fmt.Errorf("%s has an adapter of the base %s: %w", c.Dir(), from, MissingModel(err, from))
	}
	if err = CheckBase(base, from, c, a); err != nil {
		return nil, a, errors.Join(err, base.Close())
	}
	return base, a, nil
}

// CheckBase refuses another base than the one that the adapter in a checkpoint was trained beside.
func CheckBase(base *checkpoint.Checkpoint, from string, c *checkpoint.Checkpoint, a *rundir.Adapted) error {
	if err := WholeBase(base); err != nil {
		return err
	}
	hash, err := BaseHash(base)
	if err != nil {
		return err
	}
	return a.SameBase(c.Dir(), from, hash)
}

// baseHashKey is the key of BaseHash in the metadata of an adapter's tensors in a directory of PEFT.
const baseHashKey = "troupe.base.sha256"

// BaseMetadata is the metadata by which a directory of PEFT names its base.
func BaseMetadata(hash string) map[string]string { return map[string]string{baseHashKey: hash} }

// SameBase refuses a directory of PEFT that was trained beside other weights than a checkpoint's, if it says so: only Troupe writes
// the hash of the base.
func SameBase(d *peft.Directory, base *checkpoint.Checkpoint) error {
	was, ok := d.Metadata()[baseHashKey]
	if !ok {
		return nil
	}
	hash, err := BaseHash(base)
	if err != nil {
		return err
	}
	return (&rundir.Adapted{Base: rundir.Base{From: d.Base(), SHA256: was}}).SameBase(d.Path(), base.Dir(), hash)
}

// withAdapter returns the configuration with the adapter of adapter.from, or of the run's checkpoint that has it already.
func withAdapter(cfg *config.Config, from *checkpoint.Checkpoint, sizes stages.Config) (*config.Config, error) {
	if cfg.Adapter.From == "" {
		return cfg, nil
	}
	is, err := rundir.ReadAdapted(from)
	if err != nil {
		return nil, err
	}
	if is != nil {
		return cfg.WithAdapter(is.Adapter)
	}
	a, err := readAdapter(cfg, from, sizes)
	if err != nil {
		return nil, cfg.Errorf("adapter.from", "%w", err)
	}
	return cfg.WithAdapter(a)
}

func readAdapter(cfg *config.Config, base *checkpoint.Checkpoint, sizes stages.Config) (a *stages.Adapter, err error) {
	m, err := stages.NewModel(sizes)
	if err != nil {
		return nil, err
	}
	d, err := peft.Read(cfg.Adapter.From)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	if a, err = d.Adapter(m); err != nil {
		return nil, err
	}
	return a, SameBase(d, base)
}

// WholeBase refuses a checkpoint that has an adapter instead of a model's weights.
func WholeBase(base *checkpoint.Checkpoint) error {
	if !base.Part() {
		return nil
	}
	return fmt.Errorf("%s has only an adapter, not the weights of a model; merge them with engine export --merge, and use the result",
		base.Dir())
}

// AdaptedWeights is the Source of a model with an adapter. own is a checkpoint of it; nil: it starts from its base, with the adapter
// that a seed determines, and the type in which stages hold the base.
func AdaptedWeights(base, own *checkpoint.Checkpoint, m *stages.Model, seed uint64, held tensorops.DType) stages.Source {
	stored := Weights(base)
	initial := stages.AdapterWeights(m, stored, seed, held)
	if own == nil {
		return initial
	}
	trained := Weights(own)
	return func(p *stages.Param, part string, dst []float32) error {
		if p.Frozen {
			return stored(p, part, dst)
		}
		return trained(alone(p), part, dst)
	}
}

// alone is a parameter with a tensor of its own, as checkpoints of adapters have it.
func alone(p *stages.Param) *stages.Param {
	own := *p
	own.Stored, own.Parts, own.Other = stages.Stored{}, nil, nil
	return &own
}

// CheckAdapter makes sure that a checkpoint has exactly the trained parameters of a model with an adapter, and their parts of the
// optimizer's state.
func CheckAdapter(c *checkpoint.Checkpoint, m *stages.Model, parts StateParts) error {
	used := make(map[string]bool)
	for _, p := range m.Params {
		if p.Frozen {
			continue
		}
		for _, part := range parts.of(p) {
			names, err := findWhole(c, p, alone(p).StoredParts()[0], part)
			if err != nil {
				return err
			}
			if part == "" {
				used[names[0]] = true
			}
		}
	}
	for _, name := range c.Model().Names() {
		if !used[name] {
			return fmt.Errorf("%s: the adapter of the configuration does not use the tensor %q, one of %d", c.Dir(), name,
				len(c.Model().Names()))
		}
	}
	return nil
}
