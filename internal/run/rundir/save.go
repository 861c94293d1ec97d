package rundir

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"sort"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/run/trainstate"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/internal/tokenizer"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
)

// Saver writes checkpoints.
type Saver struct {
	store  *checkpoint.Store
	keep   int
	static map[string][]byte // config.json, tokenizer.json
	// SyncMetrics makes the lines up to a checkpoint's step outlive a power failure
	// before the checkpoint does: a run that resumes from it does not write them again.
	SyncMetrics func() error
	// Saved receives each checkpoint as soon as it is written; nil: not called.
	Saved func(state trainstate.State, dir string)
	// BestStep is the step of the best validation that the newest checkpoint knows: a run that resumes
	// from there needs its weights. Write keeps it up to date.
	BestStep int64
	params   []*stages.Param   // of the model
	best     map[string][]byte // the static files of the best weights; nil: those of a checkpoint
	narrow   bool              // the best weights are stored in bfloat16
	part     bool              // checkpoints have the trained parameters only: see OfAdapter
}

// NewSaver makes one of what stays the same from checkpoint to checkpoint. A file of kept's is
// left unchanged, except for the model's type in config.json, and a tokenizer other than its own.
func NewSaver(store *checkpoint.Store, keep int, cfgTOML []byte, model stages.Config, t tokenizer.Tokenizer, kept Kept) (*Saver, error) {
	s := &Saver{store: store, keep: keep, static: map[string][]byte{ConfigFile: cfgTOML}}
	maps.Copy(s.static, kept.Texts)
	hf, err := model.HFOver(kept.Model, "float32")
	if err != nil {
		return nil, err
	}
	s.static[ModelFile] = hf
	if model.Language() { // tensors of other models have one parameter each
		m, err := stages.NewModel(model)
		if err != nil {
			return nil, err
		}
		s.params = m.Params
	}
	if t == nil {
		return s, nil
	}
	if s.static[TokensFile], err = tokenizer.Marshal(t); err != nil {
		return nil, err
	}
	switch own := kept.Texts[TokensFile]; {
	case bytes.Equal(own, s.static[TokensFile]):
	case sameTokenizer(own, t):
		s.static[TokensFile] = own
	default: // what says the same of another tokenizer would contradict it
		for _, name := range vocabFiles {
			delete(s.static, name)
		}
	}
	return s, nil
}

func finite(v *float64) *float64 {
	if v == nil || math.IsNaN(*v) || math.IsInf(*v, 0) {
		return nil
	}
	return v
}

// Write stores the parts that the stages gave, in the model's order: the file
// does not depend on the layout.
func (s *Saver) Write(ctx context.Context, state trainstate.State, saved []stages.Saved, best bool) (string, error) {
	return s.WriteShared(ctx, state, saved, best, trainstate.Others{Holds: func(string) bool { return false }})
}

// WriteShared is Write where stages in other processes hold some tensors and write them to the
// folder themselves.
func (s *Saver) WriteShared(ctx context.Context, state trainstate.State, saved []stages.Saved, best bool, others trainstate.Others) (string,
	error) {
	sort.SliceStable(saved, func(i, j int) bool {
		if saved[i].Index != saved[j].Index {
			return saved[i].Index < saved[j].Index
		}
		return saved[i].Part < saved[j].Part
	})
	c := checkpoint.Content{Step: int(state.Step), Part: s.part}
	var err error
	c.Model, c.Optimizer, err = s.tensors(saved, func(v stages.Saved) (safetensors.Tensor, error) {
		t := tensorOf(v)
		if others.Holds(v.Name) {
			t.Data, t.Stream, t.Absent = nil, nil, true
		}
		return t, nil
	})
	if err != nil {
		return "", err
	}
	if others.Write != nil {
		c.Others = &checkpoint.Others{Tag: others.Attempt.String(), Write: func(_ context.Context, places []checkpoint.Place) ([]uint32, error) {
			own := make([]trainstate.Place, len(places))
			for i, p := range places {
				own[i] = trainstate.Place{Tensor: p.Tensor, File: p.File, Offset: p.Offset}
			}
			return others.Write(own)
		}}
	}
	if c.Files, err = files(s.static, state); err != nil {
		return "", err
	}
	if err := s.SyncMetrics(); err != nil {
		return "", err
	}
	dir, err := s.store.Save(ctx, c)
	if wrong := (*checkpoint.OthersError)(nil); errors.As(err, &wrong) {
		return "", &trainstate.NotWrittenError{Tensors: wrong.Tensors, Err: err}
	}
	if err != nil {
		return "", err
	}
	err = s.store.SetLast(c.Step)
	if best {
		err = errors.Join(err, s.store.SetBest(c.Step))
	}
	if err == nil && state.SkippedInARow == 0 { // else an older checkpoint may be the last one with useful weights
		_, err = s.store.Prune(s.keep)
	}
	s.BestStep = state.BestStep
	if err == nil {
		err = s.store.PruneBest(int(s.BestStep))
	}
	if err != nil {
		return "", fmt.Errorf("after writing %s: %w", dir, err)
	}
	if s.Saved != nil {
		s.Saved(state, dir)
	}
	return dir, nil
}

// tensorOf returns a tensor of a checkpoint.
func tensorOf(v stages.Saved) safetensors.Tensor {
	switch v.DType {
	case tensorops.BFloat16:
		return safetensors.Tensor{Name: v.Name, DType: "BF16", Shape: v.Shape, Data: v.Narrow}
	case tensorops.Uint8:
		return safetensors.Tensor{Name: v.Name, DType: "U8", Shape: v.Shape, Data: v.Narrow}
	}
	return safetensors.F32(v.Name, v.Shape, v.Data)
}

// files returns the files beside the tensors.
func files(static map[string][]byte, state trainstate.State) (map[string][]byte, error) {
	all := maps.Clone(static)
	// JSON has no NaN: a loss that is not a number is left out.
	state.FirstValLoss, state.BestValLoss = finite(state.FirstValLoss), finite(state.BestValLoss)
	trainer, err := json.MarshalIndent(state, "", "  ")
	if err != nil {
		return nil, err
	}
	all[TrainerFile] = append(trainer, '\n')
	return all, nil
}
