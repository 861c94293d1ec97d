package infer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/peft"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/run/rundir"
	"github.com/troupe-ml/troupe/internal/run/trained"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/stages"
)

// weights are those of a model to export: as a checkpoint has them, or with an adapter added.
type weights struct {
	base    *stages.Model // without the adapter
	adapted *trained.Adapted
	stored  *checkpoint.Checkpoint // has the weights of base
	// With an adapter: the model with it, its layers by the parameter of their weights, all parameters by name and by tensor, and
	// their source.
	model  *stages.Model
	layers map[string]stages.LinearLayer
	expert map[string]stages.ExpertLayer // the same of experts
	byName map[string]*stages.Param
	parts  map[string][]*stages.Param
	load   stages.Source
}

// openWeights checks all weights. The result is not nil.
func openWeights(ckpt *checkpoint.Checkpoint, sizes stages.Config, o ExportOptions) (w *weights, err error) {
	w = &weights{stored: ckpt, load: plan.Weights(ckpt), parts: make(map[string][]*stages.Param)}
	if w.base, err = stages.NewModel(sizes); err != nil {
		return w, err
	}
	for _, p := range w.base.Params {
		w.parts[p.StoredName()] = append(w.parts[p.StoredName()], p)
	}
	if w.adapted, err = trained.OpenAdapted(ckpt, o.Adapter, &sizes); err != nil {
		return w, err
	}
	if !w.adapted.Exists() {
		switch {
		case o.Merge:
			return w, fmt.Errorf("%w: %s has no adapter to merge: name one with --adapter, or leave --merge out", ErrOptions, ckpt.Dir())
		case o.TextOnly:
			return w, plan.CheckTextWeights(ckpt, w.base)
		}
		return w, plan.CheckWeights(ckpt, w.base, nil)
	}
	if o.TextOnly {
		return w, fmt.Errorf("%w: --text-only has no effect with an adapter: write the text model of its base first", ErrOptions)
	}
	if w.model, err = stages.NewModel(sizes); err != nil {
		return w, err
	}
	w.stored = w.adapted.Base(ckpt)
	if w.load, err = w.adapted.Source(ckpt, w.model); err != nil {
		return w, err
	}
	w.layers, w.byName, w.parts = make(map[string]stages.LinearLayer), make(map[string]*stages.Param), make(map[string][]*stages.Param)
	for _, l := range w.model.Linears() {
		if l.Rank == 0 {
			continue
		}
		if l.Head && sizes.Tie && (o.Merge || o.isGGUF()) {
			return w, fmt.Errorf("%w: the adapter of %s can't be merged: in this model, its weight is also the embedding's", ErrOptions,
				l.Module)
		}
		w.layers[l.Weight.Name] = l
	}
	w.expert = make(map[string]stages.ExpertLayer)
	for _, l := range w.model.ExpertLayers() {
		if l.Rank > 0 {
			w.expert[l.Weight.Name] = l
		}
	}
	for _, p := range w.model.Params {
		w.byName[p.Name] = p
		w.parts[p.StoredName()] = append(w.parts[p.StoredName()], p)
	}
	return w, nil
}

// asStored reports whether the result has a tensor as the checkpoint has it.
func (w *weights) asStored(p *stages.Param) bool { return w.model == nil && plan.Usual(w.stored, p) }

// dtype returns the type of the bytes of data.
func (w *weights) dtype(p *stages.Param, of stages.StoredPart) (string, error) {
	if !w.asStored(p) {
		return "F32", nil
	}
	info, err := plan.StoredInfo(w.stored, of)
	return info.DType, err
}

// data returns the bytes of a tensor that has a parameter of the base, or a part of it, with the adapter added.
func (w *weights) data(p *stages.Param, of stages.StoredPart) ([]byte, error) {
	if w.asStored(p) {
		return plan.Stored(w.stored, of)
	}
	if of.Strides != nil {
		var all bytes.Buffer
		err := w.spread(&all, "F32", p, of)
		return all.Bytes(), err
	}
	if len(p.Parts) > 0 {
		if own := w.byName[p.Name]; own != nil { // which knows what the adapter froze
			p = own
		}
		v, err := w.ofExpert(p, of.First/of.Len, of.Len)
		return safetensors.EncodeFloat32(v), err
	}
	var all []byte
	for _, part := range w.parts[p.StoredName()] {
		v, err := w.values(part)
		if err != nil {
			return nil, err
		}
		if l, ok := w.layers[part.Name]; ok {
			f, err := w.factors(l)
			if err != nil {
				return nil, err
			}
			peft.Merge(l, v, f)
		}
		all = append(all, safetensors.EncodeFloat32(v)...)
	}
	return all, nil
}

// spread writes a tensor over which parameters are spread, one index of its first dimension after the other.
func (w *weights) spread(to io.Writer, dtype string, p *stages.Param, of stages.StoredPart) error {
	outer, inner := of.Shape[0], 1
	for _, d := range of.Shape[1:] {
		inner *= d
	}
	matrix := make([]float32, inner)
	for e := range outer {
		for _, of := range w.parts[p.StoredName()] {
			stored := of.StoredParts()[0]
			each := stored.Len / outer
			first := e * each
			v, err := w.ofExpert(of, e, each)
			if err != nil {
				return err
			}
			stored.Runs(first, first+each, func(param, at, n, step int) {
				for i, x := range v[param-first:][:n] {
					matrix[at-e*inner+i*step] = x
				}
			})
		}
		t, err := safetensors.Converted(of.Name, dtype, of.Shape[1:], "F32", safetensors.EncodeFloat32(matrix))
		if err == nil {
			_, err = t.WriteTo(to)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// ofExpert returns the n numbers that a parameter has of an expert, with the adapter added.
func (w *weights) ofExpert(p *stages.Param, expert, n int) ([]float32, error) {
	slice := func(p *stages.Param, n int) ([]float32, error) {
		part := *p
		part.Slice, part.Shape = p.Slice.Range(expert*n, (expert+1)*n), []int{n}
		return w.values(&part)
	}
	v, err := slice(p, n)
	l, ok := w.expert[p.Name]
	if err != nil || !ok {
		return v, err
	}
	var f peft.Factors
	if f.A, err = slice(w.byName[l.Module+stages.AdapterA], l.Rank*l.In); err == nil {
		f.B, err = slice(w.byName[l.Module+stages.AdapterB], l.Out*l.Rank)
	}
	if err == nil {
		peft.Merge(l.LinearLayer, v, f)
	}
	return v, err
}

func (w *weights) values(p *stages.Param) ([]float32, error) {
	v := make([]float32, p.Len())
	return v, w.load(p, "", v)
}

// factors reads the numbers of a layer's adapter.
func (w *weights) factors(l stages.LinearLayer) (f peft.Factors, err error) {
	f.A, err = w.values(w.byName[l.Module+stages.AdapterA])
	if err == nil {
		f.B, err = w.values(w.byName[l.Module+stages.AdapterB])
	}
	if m := w.byName[l.Module+stages.AdapterMagnitude]; err == nil && m != nil {
		f.Magnitude, err = w.values(m)
	}
	return f, err
}

// exportAdapter writes the adapter of a run as a directory of PEFT, with the files of the model's texts.
func exportAdapter(ctx context.Context, o ExportOptions, ckpt *checkpoint.Checkpoint, w *weights, kept rundir.Kept) (e Exported,
	err error) {
	switch {
	case w.adapted.Is == nil:
		return e, &SetupError{Err: fmt.Errorf("%w: %s is a directory of PEFT already: add --merge to write the model with this adapter",
			ErrOptions,
			o.Adapter)}
	case o.DType != "float32":
		return e, &SetupError{Err: fmt.Errorf("%w: a directory of PEFT is written in float32, not %s: leave dtype out, or add --merge",
			ErrOptions, o.DType)}
	}
	files := make(map[string][]byte)
	warnings, err := exportTexts(ckpt, kept)
	if err != nil {
		return e, &SetupError{Err: fmt.Errorf("%s: %w", ckpt.Dir(), err)}
	}
	maps.Copy(files, kept.Texts)
	more, err := tokenizerFiles(w.model.Config.Family, files, kept)
	if err != nil {
		return e, err
	}
	is := w.adapted.Is.Base
	err = peft.Write(ctx, o.To, peft.Output{Model: w.model, Base: is.From, Values: w.values, Metadata: plan.BaseMetadata(is.SHA256),
		Files: files})
	if errors.Is(err, peft.ErrAdapter) {
		return e, &SetupError{Err: err}
	}
	if err != nil {
		return e, plan.AsSetup(err)
	}
	return Exported{From: ckpt.Dir(), To: o.To, Parameters: w.model.Trained(), DType: o.DType, Adapter: true,
		Warnings: append(warnings, more...)}, nil
}
