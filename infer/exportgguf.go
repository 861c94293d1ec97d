package infer

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/chat"
	"github.com/troupe-ml/troupe/internal/ggufmodel"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/corpus"
	"github.com/troupe-ml/troupe/internal/run/rundir"
)

// ggufTypes maps names of types to those of GGUF files.
var ggufTypes = map[string]string{"": "f32", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "q8_0": "q8_0"}

// isGGUF reports whether an export is to be a GGUF file.
func (o ExportOptions) isGGUF() bool {
	return o.Format == "gguf" || o.Format == "" && ggufmodel.HasExtension(o.To)
}

// exportGGUF writes a model as one file.
func exportGGUF(ctx context.Context, o ExportOptions, ckpt *checkpoint.Checkpoint, w *weights, kept rundir.Kept) (e Exported,
	err error) {
	dtype, ok := ggufTypes[o.DType]
	if !ok {
		return e, &SetupError{Err: fmt.Errorf("%w: unknown dtype %q of a GGUF file; use float32, bfloat16, float16 or q8_0", ErrOptions,
			o.DType)}
	}
	model := w.base
	m := ggufmodel.Model{Type: dtype, Name: modelName(o.From, o.To)}
	if m.Config, err = model.Config.HF(); err != nil {
		return e, err
	}
	if m.Text, err = ggufText(ckpt, kept); err != nil {
		return e, &SetupError{Err: fmt.Errorf("%s: %w", ckpt.Dir(), err)}
	}
	for _, p := range model.Params {
		if !p.FirstStored() { // its tensor is written with the first of its parameters
			continue
		}
		for _, part := range p.StoredParts() {
			stored, err := w.dtype(p, part)
			if err != nil {
				return e, &SetupError{Err: err}
			}
			m.Tensors = append(m.Tensors, ggufmodel.Tensor{Name: part.Name, DType: stored, Shape: part.Shape,
				Data: func() ([]byte, error) { return w.data(p, part) }})
		}
	}
	file, warnings, err := ggufmodel.Write(m)
	if err != nil {
		return e, &SetupError{Err: fmt.Errorf("%w: %s: %w", ErrOptions, ckpt.Dir(), err)}
	}
	err = checkpoint.ExportFile(ctx, o.To, file.Size(), func(w io.Writer) error {
		_, err := file.WriteTo(w)
		return err
	})
	if err != nil {
		return e, plan.AsSetup(err)
	}
	return Exported{From: ckpt.Dir(), To: o.To, Parameters: model.Parameters(), DType: o.DType, Warnings: warnings}, nil
}

// modelName returns the name of a model for people: that of its folder, or of the file.
func modelName(from, to string) string {
	name := filepath.Base(filepath.Clean(from))
	if step, _, _ := strings.Cut(name, "-"); slices.Contains([]string{".", "..", string(filepath.Separator), "step", "best", "last"},
		step) {
		name = filepath.Base(to)
	}
	return strings.TrimSuffix(name, ".gguf")
}

// ggufText returns how the model reads and writes text.
func ggufText(ckpt *checkpoint.Checkpoint, kept rundir.Kept) (t ggufmodel.Text, err error) {
	if t.Tokenizer, err = rundir.ReadTokenizer(ckpt); err != nil || t.Tokenizer == nil {
		return t, err
	}
	talk, err := rundir.ReadTalk(kept, t.Tokenizer)
	if err != nil {
		return t, err
	}
	t.Special = make(map[string]int32)
	for name, text := range talk.Special {
		if id, ok := t.Tokenizer.TokenID(text); ok {
			t.Special[strings.TrimSuffix(name, "_token")] = id
		}
	}
	ids, err := rundir.SpecialIDs(kept)
	for name, id := range ids {
		if _, ok := t.Special[name]; !ok && int(id) < t.Tokenizer.Vocab() {
			t.Special[name] = id
		}
	}
	t.Ends = corpus.NewText(t.Tokenizer, talk, "").Stops([]chat.Message{{Role: "user", Content: "x"}}, chat.Options{})
	t.Before, t.After, t.Template = talk.Before, talk.After, talk.Template
	return t, err
}
