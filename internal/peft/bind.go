package peft

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/strictjson"
	"github.com/troupe-ml/troupe/stages"
)

// part is what a linear layer of a model has of a module: all of it, or a part of a tensor that holds several layers.
type part struct {
	of     *module
	row    int // first row of B
	rows   int
	column int // first column of B, which is the first row of A
	rank   int
	alpha  float64
}

// headWeight is the weight of the head. With a tied one, the model has the embedding's in its place.
const headWeight = "lm_head" + endWeight

// ownName returns the name that Troupe has for a module of a model for images and text.
func ownName(name string) string {
	const text = "language_model."
	if rest, ok := strings.CutPrefix(name, "model."+text); ok {
		return "model." + rest
	}
	return strings.TrimPrefix(name, text)
}

// storedModule returns the module of the base's files that has a linear layer, perhaps with others.
func storedModule(l stages.LinearLayer) string {
	if l.Head { // also where its weight is the embedding's
		return l.Module
	}
	return moduleOf(l.Weight.StoredName())
}

// layersOf lists the linear layers of a model, by the module of the base's files that has them, and the modules in order.
func layersOf(m *stages.Model) (layers map[string][]stages.LinearLayer, names []string) {
	layers = make(map[string][]stages.LinearLayer)
	for _, l := range m.Linears() {
		name := storedModule(l)
		if layers[name] == nil {
			names = append(names, name)
		}
		layers[name] = append(layers[name], l)
	}
	return layers, names
}

// bind finds the linear layers of a model that the modules belong to, by name. Each layer that the
// settings select must have an adapter.
func (d *Directory) bind(m *stages.Model) (map[string]part, error) {
	layers, names := layersOf(m)
	parts, has := make(map[string]part), make(map[string]bool)
	for _, of := range d.modules {
		if of.parameter != "" {
			continue
		}
		own := ownName(of.name)
		if layers[own] == nil {
			return nil, fmt.Errorf("%w: %s has an adapter for module %s, but the model has no such linear layer", ErrBase, d.file.Path(),
				strictjson.Quote(of.name))
		}
		if has[own] {
			return nil, fmt.Errorf("%w: %s: there are two adapters for module %s", ErrAdapter, d.file.Path(), strictjson.Quote(own))
		}
		has[own] = true
		split, err := d.split(of, layers[own])
		if err != nil {
			return nil, err
		}
		for i, l := range layers[own] {
			if split[i].rank > 0 {
				parts[l.Module] = split[i]
			}
		}
	}
	for _, name := range names {
		isSaved := slices.ContainsFunc(d.saved, func(saved string) bool { return moduleOf(ownName(saved)) == name })
		if d.settings.targeted(name) && !has[name] && !isSaved {
			return nil, fmt.Errorf("%w: target_modules in %s selects module %s, but %s has no adapter of it", ErrAdapter, ConfigFile,
				strictjson.Quote(name), d.file.Path())
		}
	}
	return parts, nil
}

// Adapter returns the adapter for a base without one. Its names are those of Troupe's modules. The error is ErrBase if a module does
// not exist in the base or has another size there.
func (d *Directory) Adapter(base *stages.Model) (*stages.Adapter, error) {
	parts, err := d.bind(base)
	if err != nil {
		return nil, err
	}
	s := d.settings
	a := &stages.Adapter{Dropout: s.dropout, RSLoRA: s.rslora, DoRA: s.dora}
	var names, others []string // in the model's order
	ranks, alphas := make(map[string]int), make(map[string]float64)
	add := func(module string, rank int, alpha float64, has bool) {
		if !has {
			others = append(others, module)
			return
		}
		names = append(names, module)
		ranks[module], alphas[module] = rank, alpha
	}
	for _, l := range base.Linears() {
		part, ok := parts[l.Module]
		add(l.Module, part.rank, part.alpha, ok)
	}
	experts, err := d.bindExperts(base)
	if err != nil {
		return nil, err
	}
	for _, l := range base.ExpertLayers() {
		part, ok := experts[l.Module]
		add(l.Module, part.rank, part.alpha, ok)
	}
	a.Targets = targetsOf(names, others)
	a.Rank, a.RankPattern = patternOf(names, ranks)
	a.Alpha, a.AlphaPattern = patternOf(names, alphas)
	saved, err := d.bindSaved(base)
	if err != nil {
		return nil, err
	}
	for _, p := range base.Params {
		if of := p.Module(); saved[p.StoredName()] != "" && !slices.Contains(a.Save, of) {
			a.Save = append(a.Save, of)
		}
	}
	return a, nil
}

// moduleOf returns the module of a tensor of the base's files.
func moduleOf(tensor string) string {
	return strings.TrimSuffix(strings.TrimSuffix(tensor, endWeight), endBias)
}

// storedParams lists the parameters of each tensor of a base's files, in the order of their rows.
func storedParams(m *stages.Model) map[string][]*stages.Param {
	stored := make(map[string][]*stages.Param)
	for _, p := range m.Params {
		if !p.Adapter {
			stored[p.StoredName()] = append(stored[p.StoredName()], p)
		}
	}
	return stored
}

// bindSaved returns the tensors of the file that replace weights of the base, by the names of the base's tensors.
func (d *Directory) bindSaved(m *stages.Model) (map[string]string, error) {
	stored, saved := storedParams(m), make(map[string]string)
	for _, name := range d.saved {
		of, file := ownName(name), prefix+name
		if of == headWeight && m.Config.Tie { // a copy of the embedding's
			continue
		}
		params := stored[of]
		info, _ := d.file.Info(file)
		switch {
		case params == nil:
			return nil, fmt.Errorf("%w: %s: the model has no tensor %s", ErrBase, d.file.Path(), strictjson.Quote(name))
		case params[0].Stored.Strides != nil:
			return nil, fmt.Errorf("%w: %s has tensor %q, but experts are not trained whole beside an adapter", ErrBase, d.file.Path(),
				file)
		case !slices.Equal(info.Shape, params[0].StoredShape()):
			return nil, fmt.Errorf("%w: %s: tensor %q has shape %d, but the model needs %d", ErrBase, d.file.Path(), file, info.Shape,
				params[0].StoredShape())
		}
		saved[of] = file
	}
	if !m.Config.Tie {
		return saved, nil
	}
	// With a tied head, PEFT trains the embedding and the head apart unless the setting says otherwise.
	embedding := saved[m.Params[0].Name]
	for _, name := range d.saved {
		if ownName(name) != headWeight {
			continue
		}
		if embedding == "" {
			return nil, fmt.Errorf("%w: %s has %s without the embedding, but the model uses one tensor for both", ErrBase, d.file.Path(),
				headWeight)
		}
		a, err := d.file.Bytes(prefix + name)
		if err != nil {
			return nil, err
		}
		b, err := d.file.Bytes(embedding)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(a, b) {
			return nil, fmt.Errorf("%w: %s: %s differs from the embedding, but the model uses one tensor for both", ErrBase, d.file.Path(),
				headWeight)
		}
		return saved, nil
	}
	if embedding != "" && !d.settings.tied {
		return nil,
			fmt.Errorf("%w: modules_to_save in %s has the embedding, but not the head, and the model "+
				"uses one tensor for both; set ensure_weight_tying to true",
				ErrBase, d.path)
	}
	return saved, nil
}

// Weights returns the source of the weights of a model with this adapter. base has the weights of the model without it. Before, all
// tensors of the file are compared with the model: the error is ErrBase.
func (d *Directory) Weights(m *stages.Model, base stages.Source) (stages.Source, error) {
	parts, err := d.bind(m)
	if err != nil {
		return nil, err
	}
	saved, err := d.bindSaved(m)
	if err != nil {
		return nil, err
	}
	experts, err := d.bindExperts(m)
	if err != nil {
		return nil, err
	}
	used := make(map[string]bool)
	for _, p := range m.Params {
		switch {
		case p.Adapter:
			of, end := splitName(p.Name)
			if x, ok := experts[of]; ok {
				if got := x.shape(end); !slices.Equal(got, p.Whole) {
					return nil, fmt.Errorf("%w: %s: the adapter of %q gives shape %d, but %s of the model needs %d", ErrBase, d.file.Path(),
						x.of.parameter, got, p.Name, p.Whole)
				}
				used[of] = true
				continue
			}
			part, ok := parts[of]
			if !ok {
				return nil, fmt.Errorf("%w: %s has no adapter for module %q", ErrBase, d.file.Path(), of)
			}
			if got := part.shape(end); !slices.Equal(got, p.Whole) {
				return nil, fmt.Errorf("%w: %s: tensor %q gives shape %d, but %s of the model needs %d", ErrBase, d.file.Path(),
					part.tensor(end),
					got, p.Name, p.Whole)
			}
			used[of] = true
		case !p.Frozen && saved[p.StoredName()] == "":
			return nil, fmt.Errorf("%w: %s has no tensor %s%s, which the model trains", ErrBase, d.file.Path(), prefix, p.StoredName())
		}
	}
	for of, part := range parts {
		if !used[of] {
			return nil, fmt.Errorf("%w: %s has an adapter for module %s, but in this model it can have none", ErrBase, d.file.Path(),
				strictjson.Quote(part.of.name))
		}
	}
	for of, part := range experts {
		if !used[of] {
			return nil, fmt.Errorf("%w: %s has an adapter for %q, but in this model %s has none", ErrBase, d.file.Path(), part.of.parameter,
				of)
		}
	}
	return func(p *stages.Param, kind string, dst []float32) error {
		if kind != "" {
			return base(p, kind, dst)
		}
		var whole []float32
		var err error
		switch name := saved[p.StoredName()]; {
		case p.Adapter:
			of, end := splitName(p.Name)
			if x, ok := experts[of]; ok {
				whole, err = d.expertValues(x, end)
			} else {
				whole, err = d.values(parts[of], end)
			}
		case name != "":
			if whole, err = d.tensor(name); err == nil {
				whole = whole[p.StoredAt():]
			}
		default:
			return base(p, kind, dst)
		}
		if err != nil {
			return err
		}
		p.Slice.Runs(p.Whole, func(at, wholeAt, n int) { copy(dst[at:at+n], whole[wholeAt:wholeAt+n]) })
		return nil
	}, nil
}

// splitName returns the module of an adapter's parameter, and the end of its name.
func splitName(param string) (module, end string) {
	for _, end := range []string{endA, endB, endMagnitude} {
		if of, ok := strings.CutSuffix(param, end); ok {
			return of, end
		}
	}
	return param, ""
}

// tensor returns the name of one of the part's tensors.
func (p part) tensor(end string) string {
	switch end {
	case endA:
		return p.of.a
	case endB:
		return p.of.b
	}
	return p.of.m
}

// shape returns the shape that a layer has of a tensor.
func (p part) shape(end string) []int {
	switch end {
	case endA:
		return []int{p.rank, p.of.in}
	case endB:
		return []int{p.rows, p.rank}
	}
	return []int{p.rows}
}

// values returns what a layer has of a tensor.
func (d *Directory) values(p part, end string) ([]float32, error) {
	all, err := d.tensor(p.tensor(end))
	if err != nil {
		return nil, err
	}
	switch end {
	case endA:
		return all[p.column*p.of.in : (p.column+p.rank)*p.of.in], nil
	case endMagnitude:
		return all[p.row : p.row+p.rows], nil
	}
	if p.rank == p.of.rank {
		return all[p.row*p.rank : (p.row+p.rows)*p.rank], nil
	}
	own := make([]float32, 0, p.rows*p.rank)
	for row := p.row; row < p.row+p.rows; row++ {
		at := row*p.of.rank + p.column
		own = append(own, all[at:at+p.rank]...)
	}
	return own, nil
}
