package forecast

import (
	"cmp"
	"slices"

	"github.com/troupe-ml/troupe/stages"
)

// kindsOf returns the decoder layers of each kind, by their places among all layers; the kind with the most layers is the first. Layers of
// one kind have as many operations, and either all of them have experts or none does.
func kindsOf(m *stages.Model) (kinds [][]int) {
	type kind struct {
		flops float64
		dense bool
	}
	flops, symbols, decoder := m.FLOPs(m.Config.Context), m.Symbols(), 0
	index := make(map[kind]int)
	for layer := range flops {
		if symbols[layer] != stages.SymbolDecoder {
			continue
		}
		k := kind{flops[layer], slices.Contains(m.Config.Experts.Dense, decoder)}
		decoder++
		i, seen := index[k]
		if !seen {
			i = len(kinds)
			index[k], kinds = i, append(kinds, nil)
		}
		kinds[i] = append(kinds[i], layer)
	}
	slices.SortStableFunc(kinds, func(a, b []int) int { return cmp.Compare(len(b), len(a)) })
	return kinds
}

// measures returns the decoder layers that are measured, with the kind of each: of every kind at least one, the more layers it has the
// more, and of one kind those in the middle of equal parts of the model. Without room for one of each, the kinds with the fewest
// layers are left out.
func (s *sample) measures() map[int]int {
	kinds := kindsOf(s.model)
	measured := make([]int, min(s.decoders, len(kinds))) // by kind, how many
	for i := range measured {
		measured[i] = 1
	}
	for range min(s.decoders, s.model.Config.Layers) - len(measured) {
		next := 0
		for i, layers := range kinds[:len(measured)] { // which stands for the most layers, and has another one
			if n := measured[i]; n < len(layers) &&
				(measured[next] == len(kinds[next]) || len(layers)*measured[next] > len(kinds[next])*n) {
				next = i
			}
		}
		measured[next]++
	}
	kindOf := make(map[int]int)
	for i, n := range measured {
		for k := range n {
			kindOf[kinds[i][(2*k+1)*len(kinds[i])/(2*n)]] = i
		}
	}
	return kindOf
}
