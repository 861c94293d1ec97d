package stages

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/tensorops"
)

// Frozen layers keep their weights: they have no gradients and no optimizer state. Below the lowest
// trained layer there is no backward at all: no gradient is computed or sent, and a forward keeps
// no activations. A weight that several layers use belongs to the layer after which it is named. So
// freezing the embedding also freezes the matrix of a head tied to it.

// The names of a language model's first and last layer. The layers between are numbered from 0: the
// decoder layers, then those of multi-token prediction.
const (
	layerEmbed = "embed"
	layerHead  = "head"
)

// LayerNames returns the names that Freeze takes, in the order of the layers.
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

// LayersOf returns, for each parameter by its Index, the layer after which it is named.
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

// Freeze keeps the named layers from being trained; "3-7" names the layers 3 to 7. Call it once,
// before the model is used. The error is ErrModel.
func (m *Model) Freeze(layers []string) error {
	if m.Config.Adapter != nil {
		if len(layers) > 0 {
			return fmt.Errorf("%w: cannot freeze layers: an adapter freezes all weights of its base; choose the layers by adapter.targets", ErrModel)
		}
		return nil
	}
	names := m.LayerNames()
	frozen := make([]bool, len(names))
	for _, name := range layers {
		first, last := name, name
		if slices.Index(names, name) < 0 {
			first, last, _ = strings.Cut(name, "-")
		}
		from, to := slices.Index(names, first), slices.Index(names, last)
		if from < 0 || to < from {
			return fmt.Errorf("%w: cannot freeze %q: the layers are %s", ErrModel, name, listed(names))
		}
		for i := from; i <= to; i++ {
			frozen[i] = true
		}
	}
	for i, l := range m.layers {
		for _, u := range l.uses() {
			if u.place == placeOwn {
				u.param.Frozen = frozen[i] || u.param.Constant || u.param.Fixed
			}
		}
	}
	m.froze, m.thawed = len(layers) > 0, nil
	for i, l := range m.layers {
		for _, u := range l.uses() {
			if frozen[i] && u.place != placeOwn && !u.param.Frozen {
				m.thawed = append(m.thawed,
					fmt.Sprintf("layer %q is frozen, but it uses %s, which belongs to a trained layer: freeze that layer, too", names[i],
						u.param.Name))
			}
		}
	}
	if m.Trained() == 0 && m.Parameters() > 0 {
		return fmt.Errorf("%w: all layers with weights are frozen: leave at least one to train", ErrModel)
	}
	m.stopGradients()
	return nil
}

// Thawed describes the frozen layers that use weights of a trained layer; those weights are trained
// all the same.
func (m *Model) Thawed() []string { return m.thawed }

// listed lists layer names for an error, with ranges of numbers shortened to their ends.
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

// place returns the number in a layer's name, or -2.
func place(name string) int {
	n, err := strconv.Atoi(name)
	if err != nil {
		return -2
	}
	return n
}

// stopGradients removes the gradients that no weight needs: those of values that only frozen layers
// compute.
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

// GoesBack reports whether a layer takes part in the backward pass: it, or a layer before it, is
// trained.
func (m *Model) GoesBack(layer int) bool {
	return !m.froze || m.trains(layer) || slices.ContainsFunc(m.wires[layer].ins, func(v int) bool { return m.values[v].grad })
}

// TrainedShare returns the share of a layer's weights that is trained, from 0 to 1; 1 for a layer
// without weights.
func (m *Model) TrainedShare(layer int) float64 {
	all := []ChunkSpec{{First: layer, Last: layer + 1}}
	if n := m.ParametersOf(all); n > 0 {
		return float64(m.TrainedOf(all)) / float64(n)
	}
	return 1
}

// Trained returns the number of weights that are trained.
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

// frozenLayer reports whether a layer has weights and none of them is trained.
func frozenLayer(l layer) bool {
	return len(l.uses()) > 0 && !slices.ContainsFunc(l.uses(), func(u use) bool { return !u.param.Frozen })
}

// fetch records a copy of a tensor to float32 numbers in host memory.
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
