package infer

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/stages"
)

// ExportOptions say what Export writes.
type ExportOptions struct {
	From string // a run's output folder, a checkpoint, or a Hugging Face directory
	To   string // a folder that is not there yet
	// DType is what the weights are stored as: "float32", "bfloat16" or "float16"; "": float32.
	DType string
	// ShardBytes is the size above which the weights are split into several files; 0: 5 GB.
	ShardBytes int64
}

// Exported is what Export has written.
type Exported struct {
	From       string `json:"from"`
	To         string `json:"to"`
	Parameters int64  `json:"parameters"`
	DType      string `json:"dtype"`
	// Warnings say what is otherwise in the folder than in the model's, and where other programs will use the
	// model otherwise than it was trained.
	Warnings []string `json:"warnings,omitempty"`
}

// exportTypes are the types of weights by the names that config.json has for them.
func exportTypes() map[string]string {
	return map[string]string{"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
}

// Export writes a language model as a Hugging Face directory: config.json with the keys that the
// model came with, its tokenizer's files as they are (with a tokenizer_config.json where
// there is none, by which transformers takes tokenizer.json as it is), and the weights, read and converted
// tensor by tensor. The folder is there whole or not at all; one that exists is not replaced.
func Export(ctx context.Context, o ExportOptions) (e Exported, err error) {
	if o.DType == "" {
		o.DType = "float32"
	}
	dtype, ok := exportTypes()[o.DType]
	if !ok {
		return e, &SetupError{Err: fmt.Errorf("%w: the dtype %q; it is float32, bfloat16 or float16", ErrOptions, o.DType)}
	}
	ckpt, err := checkpoint.OpenAt(o.From)
	if err != nil {
		return e, &SetupError{Err: err}
	}
	defer func() { err = errors.Join(err, ckpt.Close()) }()
	sizes, err := plan.ReadModel(ckpt)
	if err != nil {
		return e, &SetupError{Err: fmt.Errorf("%s: %w", ckpt.Dir(), err)}
	}
	if !sizes.Language() {
		return e, &SetupError{Err: fmt.Errorf("%w: %s is of the family %q, which other programs don't know; only language models are exported",
			ErrOptions, ckpt.Dir(), sizes.Family)}
	}
	model, err := stages.NewModel(sizes)
	if err == nil {
		err = plan.CheckWeights(ckpt, model, nil)
	}
	if err != nil {
		return e, &SetupError{Err: err}
	}
	content := checkpoint.Content{Files: make(map[string][]byte), MaxShardBytes: o.ShardBytes}
	for _, p := range model.Params {
		stored, data, err := plan.Stored(ckpt, p)
		if err != nil {
			return e, &SetupError{Err: err}
		}
		t, err := safetensors.Converted(p.Name, dtype, p.Shape, stored.DType, data)
		if err != nil {
			return e, &SetupError{Err: err}
		}
		content.Model = append(content.Model, t)
	}
	kept, err := rundir.Keep(ckpt)
	if err != nil {
		return e, &SetupError{Err: err}
	}
	warnings, err := exportTexts(ckpt, kept)
	if err != nil {
		return e, &SetupError{Err: fmt.Errorf("%s: %w", ckpt.Dir(), err)}
	}
	maps.Copy(content.Files, kept.Texts)
	more, err := tokenizerFiles(sizes.Family, content.Files, kept)
	if err != nil {
		return e, err
	}
	warnings = append(warnings, more...)
	if content.Files[rundir.ModelFile], err = sizes.HFOver(kept.Model, o.DType); err != nil {
		return e, err
	}
	if err := checkpoint.Export(ctx, o.To, content); err != nil {
		return e, plan.AsSetup(err)
	}
	return Exported{From: ckpt.Dir(), To: o.To, Parameters: model.Parameters(), DType: o.DType, Warnings: warnings}, nil
}
