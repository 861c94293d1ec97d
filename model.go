package troupe

import (
	"errors"
	"fmt"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tokenizer"
)

// ModelOptions say which trained model to use, and on what.
type ModelOptions struct {
	From    string // a run's output folder, a checkpoint, or any Hugging Face directory of a known family
	Device  string // "cuda"; else the CPU
	Threads int    // 0: all cores
	Kernels string // "": the best
}

// trained is an open model.
type trained struct {
	ckpt      *checkpoint.Checkpoint
	model     *stages.Model
	tokenizer tokenizer.Tokenizer
	device    Device
}

// openTrained opens a model; tokenize says that it must have a tokenizer that
// this program knows.
func openTrained(o ModelOptions, tokenize bool) (t *trained, err error) {
	t = &trained{}
	defer func() {
		if err != nil {
			err = &SetupError{errors.Join(err, t.close())}
		}
	}()
	if t.ckpt, err = openFrom(o.From); err != nil {
		return t, err
	}
	c, err := readModel(t.ckpt)
	if err != nil {
		return t, fmt.Errorf("%s: %w", t.ckpt.Dir(), err)
	}
	if t.model, err = stages.NewModel(c); err != nil {
		return t, err
	}
	if t.tokenizer, err = readTokenizer(t.ckpt); err != nil && tokenize {
		return t, fmt.Errorf("%s: %w", t.ckpt.Dir(), err)
	}
	if t.tokenizer == nil && tokenize {
		return t, fmt.Errorf("%s has no %s, which is needed to read and write text", t.ckpt.Dir(), tokensFile)
	}
	if err := checkWeights(t.ckpt, t.model, nil); err != nil {
		return t, err
	}
	if t.tokenizer != nil && t.tokenizer.Vocab() > c.Vocab {
		return t, fmt.Errorf("%s: the tokenizer has %d ids, the model %d", t.ckpt.Dir(), t.tokenizer.Vocab(), c.Vocab)
	}
	if t.device, err = openDevice(deviceOptions{kind: o.Device, threads: o.Threads, kernels: o.Kernels}); err != nil {
		return t, err
	}
	if need, free := 4*float64(c.Parameters()), memoryFor(t.device); free > 0 && need > float64(free) {
		return t, fmt.Errorf("%w: the %d parameters of %s take %s, the device has %s free", ErrMemory, c.Parameters(), t.ckpt.Dir(), gib(need), gib(float64(free)))
	}
	return t, nil
}

// stage makes the whole model one chunk, without gradients.
func (t *trained) stage(s tensorops.Stream) (*stages.Stage, error) {
	whole := []stages.ChunkSpec{{Virtual: 0, First: 0, Last: len(t.model.Symbols())}}
	st, err := stages.NewStage(t.model, s, whole, stages.Options{Inference: true})
	if err != nil {
		return nil, err
	}
	return st, st.Load(weights(t.ckpt), false)
}

func (t *trained) close() error {
	if t.device != nil {
		t.device.Close()
	}
	if t.ckpt != nil {
		return t.ckpt.Close()
	}
	return nil
}
