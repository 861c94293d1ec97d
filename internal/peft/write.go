package peft

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/checkpoint"
	"github.com/troupe-ml/troupe/internal/safetensors"
	"github.com/troupe-ml/troupe/stages"
)

// Output is an adapter to write.
type Output struct {
	Model *stages.Model // with the adapter
	Base  string        // base_model_name_or_path
	// Values returns the numbers of a trained parameter.
	Values func(p *stages.Param) ([]float32, error)
	// Metadata is written to the file of tensors.
	Metadata map[string]string
	// Files are written beside the two of the adapter, unchanged.
	Files map[string][]byte
}

// written is a module as the directory has it.
type written struct {
	name   string
	layers []stages.LinearLayer // in the order of their rows; some may have no adapter
	in     int
	rank   int // sum of the layers'
	alpha  float64
}

// Write writes a new directory, which appears complete or not at all.
func Write(ctx context.Context, to string, o Output) error {
	params := make(map[string]*stages.Param, len(o.Model.Params))
	for _, p := range o.Model.Params {
		params[p.Name] = p
	}
	modules, others, err := modulesOf(o.Model)
	if err != nil {
		return err
	}
	experts, err := expertsOf(o.Model)
	if err != nil {
		return err
	}
	w := writer{Output: o, params: params}
	for _, m := range modules {
		if err := w.module(m); err != nil {
			return err
		}
	}
	w.experts(experts)
	save, err := w.saved()
	if err != nil {
		return err
	}
	config, err := w.config(modules, experts, others, save)
	if err != nil {
		return err
	}
	weights, err := safetensors.Prepare(o.metadata(), w.tensors)
	if err != nil {
		return fmt.Errorf("%s: %w", WeightsFile, err)
	}
	files := []checkpoint.ExportedFile{
		{Name: ConfigFile, Bytes: int64(len(config)), Write: writeBytes(config)},
		{Name: WeightsFile, Bytes: weights.Size(), Write: func(to io.Writer) error {
			_, err := weights.WriteTo(to)
			return err
		}},
	}
	for _, name := range slices.Sorted(maps.Keys(o.Files)) {
		files = append(files, checkpoint.ExportedFile{Name: name, Bytes: int64(len(o.Files[name])), Write: writeBytes(o.Files[name])})
	}
	return checkpoint.ExportFiles(ctx, to, files)
}

func writeBytes(b []byte) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.Copy(w, bytes.NewReader(b))
		return err
	}
}

func (o Output) metadata() map[string]string {
	all := map[string]string{"format": "pt"}
	maps.Copy(all, o.Metadata)
	return all
}

// modulesOf lists the modules with an adapter, and the names of the others that are linear layers.
func modulesOf(m *stages.Model) (list []*written, others []string, err error) {
	layers, names := layersOf(m)
	a := m.Config.Adapter
	for _, name := range names {
		w := &written{name: name, layers: layers[name], in: layers[name][0].In}
		whole := true
		for _, l := range w.layers {
			w.rank += l.Rank
			whole = whole && l.Rank > 0
		}
		switch {
		case w.rank == 0:
			others = append(others, name)
			continue
		case !whole && a.DoRA:
			return nil, nil,
				fmt.Errorf("%w: with dora = true, either all or none of the layers of %s can have an adapter "+
					"in a directory of PEFT; merge the adapter instead",
					ErrAdapter, name)
		}
		w.alpha = w.layers[0].Alpha
		if len(w.layers) > 1 {
			w.alpha = w.scale() / scale(1, w.rank, a.RSLoRA)
		}
		list = append(list, w)
	}
	return list, others, nil
}

// scale returns s of the module: that of its first layer with an adapter.
func (w *written) scale() float64 {
	for _, l := range w.layers {
		if l.Rank > 0 {
			return l.Scale
		}
	}
	return 0
}

type writer struct {
	Output
	params  map[string]*stages.Param
	tensors []safetensors.Tensor
}

// add adds a tensor whose numbers are computed when it is written.
func (w *writer) add(name string, shape []int, values func() ([]float32, error)) {
	w.tensors = append(w.tensors, safetensors.Tensor{Name: prefix + name, DType: "F32", Shape: shape, Stream: func(to io.Writer) error {
		v, err := values()
		if err == nil {
			_, err = to.Write(safetensors.EncodeFloat32(v))
		}
		return err
	}})
}

// of returns the numbers of one of an adapter's parameters.
func (w *writer) of(l stages.LinearLayer, end string) ([]float32, error) {
	p := w.params[l.Module+end]
	if p == nil {
		return nil, fmt.Errorf("%w: the model has no parameter %s%s", ErrAdapter, l.Module, end)
	}
	return w.Values(p)
}

// module adds the tensors of a module.
func (w *writer) module(m *written) error {
	out := 0
	for _, l := range m.layers {
		out += l.Out
	}
	joined := func(end string) func() ([]float32, error) {
		return func() (all []float32, err error) {
			for _, l := range m.layers {
				if l.Rank == 0 {
					continue
				}
				v, err := w.of(l, end)
				if err != nil {
					return nil, err
				}
				all = append(all, v...)
			}
			return all, nil
		}
	}
	w.add(m.name+endA, []int{m.rank, m.in}, joined(endA))
	w.add(m.name+endB, []int{out, m.rank}, func() ([]float32, error) { return w.diagonal(m, out) })
	if w.Model.Config.Adapter.DoRA {
		w.add(m.name+endMagnitude, []int{out}, joined(endMagnitude))
	}
	return nil
}

// diagonal returns B of a module: one block for each of its layers. A layer with another scale than the module's has it in its block.
func (w *writer) diagonal(m *written, out int) ([]float32, error) {
	if len(m.layers) == 1 {
		return w.of(m.layers[0], endB)
	}
	all, row, column := make([]float32, out*m.rank), 0, 0
	for _, l := range m.layers {
		if l.Rank > 0 {
			b, err := w.of(l, endB)
			if err != nil {
				return nil, err
			}
			factor := float32(l.Scale / m.scale())
			for i := range l.Out {
				to := all[(row+i)*m.rank+column:]
				for j, v := range b[i*l.Rank : (i+1)*l.Rank] {
					to[j] = v * factor
				}
			}
		}
		row, column = row+l.Out, column+l.Rank
	}
	return all, nil
}

// saved adds the tensors of the modules that are trained whole, and returns the names of these.
func (w *writer) saved() (modules []string, err error) {
	stored := storedParams(w.Model)
	done := make(map[string]bool)
	for _, p := range w.Model.Params {
		name := p.StoredName()
		if p.Adapter || p.Frozen || done[name] {
			continue
		}
		done[name] = true
		if len(p.Parts) > 0 || p.Stored.Strides != nil {
			return nil, fmt.Errorf("%w: adapter.save has the experts of %s, which PEFT does not train whole; merge the adapter instead",
				ErrAdapter, p.Module())
		}
		parts := stored[name]
		for _, part := range parts {
			if part.Frozen {
				return nil,
					fmt.Errorf("%w: adapter.save has %s, but not %s, and the model's files have both in one "+
						"tensor; merge the adapter instead",
						ErrAdapter, p.Module(), part.Module())
			}
		}
		w.add(name, p.StoredShape(), func() (all []float32, err error) {
			for _, part := range parts {
				v, err := w.Values(part)
				if err != nil {
					return nil, err
				}
				all = append(all, v...)
			}
			return all, nil
		})
		if of := moduleOf(name); !slices.Contains(modules, of) {
			modules = append(modules, of)
		}
	}
	if embedding := w.Model.Params[0]; w.Model.Config.Tie && !embedding.Frozen { // PEFT stores it twice, and reads it under both names
		modules = append(modules, moduleOf(headWeight))
		w.add(headWeight, embedding.Whole, func() ([]float32, error) { return w.Values(embedding) })
	}
	return modules, nil
}

// config returns adapter_config.json.
func (w *writer) config(modules []*written, experts []*writtenExperts, others, save []string) ([]byte, error) {
	a := w.Model.Config.Adapter
	ranks, alphas := make(map[string]int), make(map[string]float64)
	var names []string
	for _, m := range modules {
		ranks[m.name], alphas[m.name] = m.rank, m.alpha
		names = append(names, m.name)
	}
	all := names
	for _, x := range experts {
		ranks[x.parameter], alphas[x.parameter] = x.rank, x.scale/scale(1, x.rank, a.RSLoRA)
		all = append(all, x.parameter)
	}
	rank, rankPattern := patternOf(all, ranks)
	alpha, alphaPattern := patternOf(all, alphas)
	inOut := len(modules) > 0 && modules[0].layers[0].InOut
	settings := make(map[string]any)
	if len(experts) > 0 {
		settings["target_parameters"] = parametersIn(w.Model, experts)
	}
	tied := w.Model.Config.Tie && slices.Contains(save, w.Model.Params[0].Module())
	maps.Copy(settings, map[string]any{
		"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": w.Base, "inference_mode": true,
		"r": rank, "lora_alpha": alpha, "lora_dropout": a.Dropout, "target_modules": append([]string{}, targetsOf(names, others)...),
		"rank_pattern": rankPattern, "alpha_pattern": alphaPattern, "use_rslora": a.RSLoRA, "use_dora": a.DoRA, "bias": "none",
		"fan_in_fan_out": inOut, "init_lora_weights": true, "modules_to_save": save, "ensure_weight_tying": tied,
	})
	text, err := json.MarshalIndent(settings, "", "  ")
	return append(text, '\n'), err
}

// end returns the last part of a module's name.
func end(name string) string { return name[strings.LastIndexByte(name, '.')+1:] }

// targetsOf returns the shortest list of names that selects the modules and none of the others.
func targetsOf(modules, others []string) (targets []string) {
	for _, name := range modules {
		targets = append(targets, end(name))
	}
	slices.Sort(targets)
	targets = slices.Compact(targets)
	if slices.ContainsFunc(others, func(other string) bool { return slices.Contains(targets, end(other)) }) {
		return modules
	}
	return targets
}

// patternOf returns the most frequent value, and patterns for the modules with another one: the ends of their names where these say
// enough.
func patternOf[T cmp.Ordered](modules []string, values map[string]T) (usual T, pattern map[string]T) {
	counts, most := make(map[T]int), 0
	ofEnd, mixed := make(map[string]T), make(map[string]bool)
	for _, name := range modules {
		v := values[name]
		counts[v]++
		if n := counts[v]; n > most || n == most && v < usual {
			usual, most = v, n
		}
		if other, ok := ofEnd[end(name)]; ok && other != v {
			mixed[end(name)] = true
		}
		ofEnd[end(name)] = v
	}
	pattern = make(map[string]T)
	for _, name := range modules {
		switch v := values[name]; {
		case v == usual:
		case mixed[end(name)]:
			pattern[name] = v
		default:
			pattern[end(name)] = v
		}
	}
	return usual, pattern
}
