package peft

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/stages"
)

// PEFT adapts the matrices of all experts as a parameter of their module (target_parameters): gate_up_proj, which has those of gate and
// up, and down_proj. For E experts A is [E·rank, in], with the rows of an expert one after another, and B is [out, rank·E], with the
// columns of a rank one after another. If a module has adapters of both parameters, those of the first one have the name of the module and
// innerName. Troupe has an adapter of gate and one of up: as for fused linear layers, each has columns of B of its own where Troupe wrote
// it.
const (
	innerName    = ".base_layer"
	gateUpParam  = "gate_up_proj"
	downParam    = "down_proj"
	expertParams = gateUpParam + " and " + downParam
)

// parametersOf returns the parameters of a module that target_parameters selects, the first one first.
func (s *settings) parametersOf(module string) (params []string) {
	for _, param := range []string{gateUpParam, downParam} {
		whole := module + "." + param
		if slices.ContainsFunc(s.parameters, func(one string) bool { return whole == one || strings.HasSuffix(whole, "."+one) }) {
			params = append(params, param)
		}
	}
	return params
}

// checkParameters refuses other parameters than those of experts.
func (s *settings) checkParameters() error {
	for _, one := range s.parameters {
		if end := end(one); end != gateUpParam && end != downParam {
			return fmt.Errorf("target_parameters has %q: only %s of experts are supported", one, expertParams)
		}
	}
	return nil
}

// parameterOf returns the parameter that a module of the file adapts, with the name of its own module; "": it is a linear layer.
func (s *settings) parameterOf(name string) (module, param string) {
	module, inner := strings.CutSuffix(name, innerName)
	params := s.parametersOf(module)
	switch {
	case len(params) == 2 && inner:
		return module, params[0]
	case len(params) > 0 && !inner:
		return module, params[len(params)-1]
	}
	return name, ""
}

// expertPart is what the experts' matrices of one kind have of a module: rank columns of each expert, from column on.
type expertPart struct {
	of           *module
	layer        stages.ExpertLayer
	column, rank int
	alpha        float64
}

// bindExperts finds the matrices of experts that the modules belong to, by the name of the matrices.
func (d *Directory) bindExperts(m *stages.Model) (map[string]expertPart, error) {
	layers := make(map[string][]stages.ExpertLayer)
	for _, l := range m.ExpertLayers() {
		layers[l.Parameter] = append(layers[l.Parameter], l)
	}
	parts := make(map[string]expertPart)
	for _, of := range d.modules {
		if of.parameter == "" {
			continue
		}
		own := ownName(of.parameter)
		if layers[own] == nil {
			return nil, fmt.Errorf("%w: %s has an adapter for the parameter %q, but the model has no such experts", ErrBase, d.file.Path(),
				own)
		}
		split, err := d.splitExperts(of, layers[own])
		if err != nil {
			return nil, err
		}
		for _, p := range split {
			if p.rank > 0 {
				parts[p.layer.Module] = p
			}
		}
		delete(layers, own) // one adapter for each
	}
	for name := range layers {
		if slices.Contains(d.settings.parametersOf(moduleName(name)), end(name)) {
			return nil, fmt.Errorf("%w: target_parameters in %s selects %q, but %s has no adapter of it", ErrAdapter, ConfigFile, name,
				d.file.Path())
		}
	}
	return parts, nil
}

// splitExperts returns the part that each of the kinds of matrices in a parameter has.
func (d *Directory) splitExperts(of *module, layers []stages.ExpertLayer) ([]expertPart, error) {
	first := layers[0]
	if of.rank%first.Experts != 0 || of.in != first.In || of.out != first.Outputs {
		return nil,
			fmt.Errorf("%w: %s: the adapter of the parameter %q has %d rows, %d inputs and %d outputs, but the model has %d experts "+
				"with %d inputs and %d outputs", ErrBase, d.file.Path(), of.parameter, of.rank, of.in, of.out, first.Experts, first.In,
				first.Outputs)
	}
	rank := of.rank / first.Experts
	if rank != of.each {
		return nil, fmt.Errorf("%w: %s: the adapter of the parameter %q has rank %d for each of %d experts, but %s gives it rank %d",
			ErrBase,
			d.file.Path(), of.parameter, rank, first.Experts, ConfigFile, of.each)
	}
	parts := make([]expertPart, len(layers))
	for i, l := range layers {
		parts[i] = expertPart{of: of, layer: l, rank: rank, alpha: of.alpha}
	}
	if len(layers) == 1 {
		return parts, nil
	}
	b, err := d.tensor(of.b)
	if err != nil {
		return nil, err
	}
	rows := make([]part, len(layers)) // those of a matrix that has the outputs of all experts by kind
	var all []float32
	for i, l := range layers {
		own := parts[i].outputs(b)
		rows[i] = part{row: len(all) / rank, rows: l.Experts * l.Out}
		all = append(all, own...)
	}
	if ranks := ranksOf(rows, all, rank); ranks != nil {
		column := 0
		for i, r := range ranks {
			parts[i].column, parts[i].rank, parts[i].alpha = column, r, d.settings.alphaOf(of.alpha, rank, r)
			column += r
		}
	}
	return parts, nil
}

// outputs returns the part's columns of B as [E, out, rank].
func (p expertPart) outputs(b []float32) []float32 {
	l, experts := p.layer, p.layer.Experts
	whole := p.of.rank / experts
	own := make([]float32, 0, experts*l.Out*p.rank)
	for e := range experts {
		for o := range l.Out {
			row := b[(l.First+o*l.Step)*whole*experts:]
			for k := range p.rank {
				own = append(own, row[(p.column+k)*experts+e])
			}
		}
	}
	return own
}

// shape is that of a parameter of the model's adapter.
func (p expertPart) shape(end string) []int {
	if end == endA {
		return []int{p.layer.Experts, p.rank, p.layer.In}
	}
	return []int{p.layer.Experts, p.layer.Out, p.rank}
}

// expertValues returns the numbers of a parameter of the model's adapter.
func (d *Directory) expertValues(p expertPart, end string) ([]float32, error) {
	if end == endB {
		b, err := d.tensor(p.of.b)
		if err != nil {
			return nil, err
		}
		return p.outputs(b), nil
	}
	a, err := d.tensor(p.of.a)
	if err != nil {
		return nil, err
	}
	whole, in := p.of.rank/p.layer.Experts, p.layer.In
	own := make([]float32, 0, p.layer.Experts*p.rank*in)
	for e := range p.layer.Experts {
		at := (e*whole + p.column) * in
		own = append(own, a[at:at+p.rank*in]...)
	}
	return own, nil
}
