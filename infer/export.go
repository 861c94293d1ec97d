package infer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/ggufmodel"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/run/trained"
	"github.com/troupe-ml/troupe/internal/safetensors"
)

// ExportOptions are the options of Export.
type ExportOptions struct {
	From string // a run's output folder, a checkpoint, a Hugging Face directory or a GGUF file
	To   string // a folder, or a GGUF file, that does not exist yet
	// Format is "huggingface", a folder for transformers, or "gguf", a file for llama.cpp and Ollama; "": by
	// the extension of To, a GGUF file if that is .gguf.
	Format string
	// DType is the type of the stored weights: "float32", "bfloat16" or "float16", and in a GGUF file also
	// "q8_0"; "": float32.
	DType string
	// TextOnly leaves out the other parts of a model for images and text. Without it, such a directory is an error.
	TextOnly bool
	// EMA writes the moving averages of the weights that a run with optimizer.ema has.
	EMA bool
	// Adapter is a directory of PEFT with an adapter to merge; "": none.
	Adapter string
	// Merge adds the adapter to the weights. Without it, a run with an adapter is written as a directory of PEFT. A GGUF file is always
	// merged.
	Merge bool
	// ShardBytes is the largest size of a file of weights in bytes; larger weights are split. 0: 5 GB.
	ShardBytes int64
}

// Exported describes what Export has written.
type Exported struct {
	From       string `json:"from"`
	To         string `json:"to"`
	Parameters int64  `json:"parameters"`
	DType      string `json:"dtype"`
	// Adapter says that a directory of PEFT was written: the trained parameters only.
	Adapter bool `json:"adapter,omitempty"`
	// Warnings say what Export changed in the model's files, and where other programs will use the
	// model differently from its training.
	Warnings []string `json:"warnings,omitempty"`
}

// exportTypes maps the names of types in config.json to those of safetensors.
func exportTypes() map[string]string {
	return map[string]string{"float32": "F32", "bfloat16": "BF16", "float16": "F16"}
}

// Export writes a language model for other programs: as a GGUF file, which has the tokenizer and the chat
// template in it, or as a Hugging Face directory, with config.json with the keys of the
// original model, the tokenizer's files unchanged, and the weights, which it reads and converts
// tensor by tensor. If there is no tokenizer_config.json, it writes one that makes transformers use tokenizer.json
// unchanged. After an error there is no folder. An existing folder is not replaced.
func Export(ctx context.Context, o ExportOptions) (e Exported, err error) {
	if o.DType == "" {
		o.DType = "float32"
	}
	if o.Format != "" && o.Format != "huggingface" && o.Format != "gguf" {
		return e, &SetupError{Err: fmt.Errorf("%w: unknown format %q; use huggingface or gguf", ErrOptions, o.Format)}
	}
	dtype, ok := exportTypes()[o.DType]
	if !ok && !o.isGGUF() {
		return e, &SetupError{Err: fmt.Errorf("%w: unknown dtype %q; use float32, bfloat16 or float16", ErrOptions, o.DType)}
	}
	ckpt, err := ggufmodel.OpenAt(o.From)
	if err != nil {
		return e, &SetupError{Err: plan.MissingModel(err, o.From)}
	}
	defer func() { err = errors.Join(err, ckpt.Close()) }()
	if o.EMA {
		if err := plan.UseAverage(ckpt); err != nil {
			return e, &SetupError{Err: err}
		}
	}
	sizes, err := plan.ReadModel(ckpt)
	if err != nil {
		return e, &SetupError{Err: fmt.Errorf("%s: %w", ckpt.Dir(), err)}
	}
	if !sizes.Language() {
		return e,
			&SetupError{Err: fmt.Errorf("%w: %s has family %q, which other programs do not support; only language models can be exported",
				ErrOptions, ckpt.Dir(), sizes.Family)}
	}
	w, err := openWeights(ckpt, sizes, o)
	defer func() { err = errors.Join(err, w.adapted.Close()) }()
	if err != nil {
		return e, &SetupError{Err: err}
	}
	kept, err := rundir.Keep(ckpt)
	if err != nil {
		return e, &SetupError{Err: err}
	}
	template, err := trained.TemplateBeside(o.Adapter)
	if err != nil {
		return e, &SetupError{Err: err}
	}
	kept = template.Keep(kept)
	switch {
	case o.isGGUF():
		return exportGGUF(ctx, o, ckpt, w, kept)
	case w.adapted.Exists() && !o.Merge:
		return exportAdapter(ctx, o, ckpt, w, kept)
	}
	model := w.base
	content := checkpoint.Content{Files: make(map[string][]byte), MaxShardBytes: o.ShardBytes}
	for _, p := range model.Params {
		if !p.FirstStored() { // its tensor is written with the first of its parameters
			continue
		}
		for _, part := range p.StoredParts() {
			stored, err := w.dtype(p, part)
			if err != nil {
				return e, &SetupError{Err: err}
			}
			as := dtype
			if p.Float32 {
				as = "F32"
			}
			t := safetensors.Tensor{Name: part.Name, DType: as, Shape: part.Shape}
			t.Stream = func(to io.Writer) error { // reads one tensor after the other: those of a GGUF file are converted in memory
				if part.Strides != nil && !w.asStored(p) { // some experts at a time
					return w.spread(to, dtype, p, part)
				}
				data, err := w.data(p, part)
				if err != nil {
					return err
				}
				converted, err := safetensors.Converted(t.Name, as, t.Shape, stored, data)
				if err == nil {
					_, err = converted.WriteTo(to)
				}
				return err
			}
			content.Model = append(content.Model, t)
		}
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
