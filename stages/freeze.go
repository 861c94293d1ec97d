package stages

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/tensorops"
)

// Frozen layers keep their weights: they have no gradients and no optimizer state. Below the
// lowest layer that is trained nothing goes back at all: no gradient is computed or sent, and a
// forward keeps nothing. A weight that several layers use is that of the layer which it is
// named after: where the embedding is frozen, so is the matrix of a head tied to it.

// Names of a language model's first and last layer; those between are numbered from 0, layers
// of multi-token prediction after the decoder's.
const (
	layerEmbed = "embed"
	layerHead  = "head"
)

// LayerNames are what Freeze calls the layers, in their order.
func (m *Model) LayerNames() []string {
	names := m.Names()
	for i := range names {
		switch {
		case names[i] != "":
		case i == 0:
			names[i] = layerEmbed
		case i == len(names)-1:
			names[i] = layerHead
		default:
			names[i] = strconv.Itoa(i - 1)
		}
	}
	return names
}

// LayersOf says of each parameter, by its Index, which layer it is named after.
func (m *Model) LayersOf() []int {
	of := make([]int, len(m.Params))
	for i, l := range m.layers {
		for _, u := range l.uses() {
			if u.place == placeOwn {
				of[u.param.Index] = i
			}
		}
	}
	return of
}

// Freeze keeps layers from being trained: those of these names, where "3-7" are the layers from
// 3 to 7. It is called once, before the model is used. The error is an ErrModel.
func (m *Model) Freeze(layers []string) error {
	names := m.LayerNames()
	frozen := make([]bool, len(names))
	for _, name := range layers {
		first, last := name, name
		if slices.Index(names, name) < 0 {
			first, last, _ = strings.Cut(name, "-")
		}
		from, to := slices.Index(names, first), slices.Index(names, last)
		if from < 0 || to < from {
			return fmt.Errorf("%w: %q is no layer to freeze; there are %s", ErrModel, name, listed(names))
		}
		for i := from; i <= to; i++ {
			frozen[i] = true
		}
	}
	for i, l := range m.layers {
		for _, u := range l.uses() {
			if u.place == placeOwn {
				u.param.Frozen = frozen[i]
			}
		}
	}
	m.froze, m.thawed = len(layers) > 0, nil
	for i, l := range m.layers {
		for _, u := range l.uses() {
			if frozen[i] && u.place != placeOwn && !u.param.Frozen {
				m.thawed = append(m.thawed,
					fmt.Sprintf("layer %q is frozen, but it uses %s, which belongs to another layer and is trained: freeze that layer too", names[i],
						u.param.Name))
			}
		}
	}
	if m.Trained() == 0 && m.Parameters() > 0 {
		return fmt.Errorf("%w: all layers with weights are frozen, which leaves nothing to train", ErrModel)
	}
	m.stopGradients()
	return nil
}

// Thawed says which frozen layers have weights that are trained all the same: those of another layer, which they
// share.
func (m *Model) Thawed() []string { return m.thawed }

// listed names layers for an error: runs of numbers by their ends.
func listed(names []string) string {
	var out []string
	for i := 0; i < len(names); i++ {
		j := i
		for j+1 < len(names) && place(names[j+1]) == place(names[j])+1 && place(names[j]) >= 0 {
			j++
		}
		if j > i {
			out = append(out, strconv.Quote(names[i]+"-"+names[j]))
		} else {
			out = append(out, strconv.Quote(names[i]))
		}
		i = j
	}
	const most = 20
	if len(out) > most {
		out = append(out[:most], fmt.Sprintf("and %d more", len(out)-most))
	}
	return strings.Join(out, ", ")
}

// place is the number that a layer is called, or -2.
func place(name string) int {
	n, err := strconv.Atoi(name)
	if err != nil {
		return -2
	}
	return n
}

// stopGradients leaves out the gradients that no weight needs: of values that only frozen layers
// have made.
func (m *Model) stopGradients() {
	for i, w := range m.wires {
		needed := m.trains(i)
		for _, v := range w.ins {
			needed = needed || m.values[v].grad
		}
		for _, v := range w.outs {
			m.values[v].grad = m.values[v].grad && needed
		}
		if u, own := m.layers[i].(*unit); own {
			for k, v := range w.ins {
				u.wants[k] = m.values[v].grad
			}
		}
	}
}

// trains reports whether a layer uses a weight that is trained.
func (m *Model) trains(layer int) bool {
	return slices.ContainsFunc(m.layers[layer].uses(), func(u use) bool { return !u.param.Frozen })
}

// GoesBack reports whether a layer takes part in the backward pass: it is trained, or one before
// it is.
func (m *Model) GoesBack(layer int) bool {
	return !m.froze || m.trains(layer) || slices.ContainsFunc(m.wires[layer].ins, func(v int) bool { return m.values[v].grad })
}

// TrainedShare is how much of a layer's weights is trained; 1 for one that has none.
func (m *Model) TrainedShare(layer int) float64 {
	all := []ChunkSpec{{First: layer, Last: layer + 1}}
	if n := m.ParametersOf(all); n > 0 {
		return float64(m.TrainedOf(all)) / float64(n)
	}
	return 1
}

// Trained is the number of weights that are trained.
func (m *Model) Trained() int64 {
	var n int64
	for _, p := range m.Params {
		if !p.Frozen {
			n += int64(p.Len())
		}
	}
	return n
}

// frozen reports whether a use's weight is not trained.
func (u use) frozen() bool { return u.param.Frozen }

// frozenLayer reports whether a layer has weights, and none that is trained.
func frozenLayer(l layer) bool {
	return len(l.uses()) > 0 && !slices.ContainsFunc(l.uses(), func(u use) bool { return !u.param.Frozen })
}

// fetch records a copy of a tensor to float32 numbers of the host.
func fetch(l *tensorops.List, to []float32, t tensorops.Tensor) {
	if t.DType() == tensorops.Float32 {
		l.Fetch(tensorops.HostBytes(to), t)
		return
	}
	wide := l.Alloc(tensorops.Float32, t.Shape()...)
	l.Copy(wide, t)
	l.Fetch(tensorops.HostBytes(to), wide)
	l.Free(wide)
}
