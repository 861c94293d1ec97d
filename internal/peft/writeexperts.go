package peft

import (
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/stages"
)

// writtenExperts is a parameter of experts as the directory has it.
type writtenExperts struct {
	parameter string               // with its module
	layers    []stages.ExpertLayer // some may have no adapter
	rank      int                  // sum of the layers'
	scale     float64              // s of the first one with an adapter
}

// expertsOf lists the parameters of experts with an adapter.
func expertsOf(m *stages.Model) (list []*writtenExperts, err error) {
	for _, l := range m.ExpertLayers() {
		i := slices.IndexFunc(list, func(w *writtenExperts) bool { return w.parameter == l.Parameter })
		if i < 0 {
			i = len(list)
			list = append(list, &writtenExperts{parameter: l.Parameter})
		}
		w := list[i]
		if w.layers = append(w.layers, l); l.Rank > 0 {
			if w.rank == 0 {
				w.scale = l.Scale
			}
			w.rank += l.Rank
		}
	}
	list = slices.DeleteFunc(list, func(w *writtenExperts) bool { return w.rank == 0 })
	for _, w := range list {
		if w.layers[0].Experts == 1 {
			return nil, fmt.Errorf("%w: PEFT has no adapter of a single expert, as %s has it; merge the adapter instead", ErrAdapter,
				w.parameter)
		}
	}
	return list, nil
}

// experts adds the tensors of parameters of experts.
func (w *writer) experts(list []*writtenExperts) {
	both := make(map[string]int)
	for _, x := range list {
		both[moduleName(x.parameter)]++
	}
	for _, x := range list {
		name := moduleName(x.parameter)
		if both[name] > 1 && end(x.parameter) == gateUpParam {
			name += innerName
		}
		first := x.layers[0]
		w.add(name+endA, []int{first.Experts * x.rank, first.In}, func() ([]float32, error) { return w.expertsA(x) })
		w.add(name+endB, []int{first.Outputs, x.rank * first.Experts}, func() ([]float32, error) { return w.expertsB(x) })
	}
}

// moduleName returns a name without its last part.
func moduleName(name string) string { return name[:max(strings.LastIndexByte(name, '.'), 0)] }

// expertsA returns A: for each expert the rows of all kinds.
func (w *writer) expertsA(x *writtenExperts) (all []float32, err error) {
	of := make([][]float32, len(x.layers))
	for i, l := range x.layers {
		if l.Rank > 0 {
			if of[i], err = w.of(l.LinearLayer, endA); err != nil {
				return nil, err
			}
		}
	}
	for e := range x.layers[0].Experts {
		for i, l := range x.layers {
			n := l.Rank * l.In
			all = append(all, of[i][e*n:(e+1)*n]...)
		}
	}
	return all, nil
}

// expertsB returns B: one block of columns for each kind.
func (w *writer) expertsB(x *writtenExperts) ([]float32, error) {
	experts, column := x.layers[0].Experts, 0
	all := make([]float32, x.layers[0].Outputs*x.rank*experts)
	for _, l := range x.layers {
		if l.Rank == 0 {
			continue
		}
		b, err := w.of(l.LinearLayer, endB)
		if err != nil {
			return nil, err
		}
		factor := float32(l.Scale / x.scale)
		for e := range experts {
			for o := range l.Out {
				row := all[(l.First+o*l.Step)*x.rank*experts:]
				for k, v := range b[(e*l.Out+o)*l.Rank:][:l.Rank] {
					row[(column+k)*experts+e] = v * factor
				}
			}
		}
		column += l.Rank
	}
	return all, nil
}

// parametersIn returns the shortest list of names that selects the parameters and no others of experts.
func parametersIn(m *stages.Model, list []*writtenExperts) (names []string) {
	short := func(name string) string { return end(moduleName(name)) + "." + end(name) }
	var all []string
	for _, x := range list {
		all = append(all, x.parameter)
		names = append(names, short(x.parameter))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, l := range m.ExpertLayers() {
		if slices.Contains(names, short(l.Parameter)) && !slices.Contains(all, l.Parameter) {
			return all
		}
	}
	return names
}
