package stages

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Adapter describes low-rank adapters of a language model's linear layers (LoRA, arXiv 2106.09685). With one, a linear layer
// computes W·x + s·B·(A·dropout(x)). W and all other weights of the base are frozen, except the modules in Save. A and B are
// trained. s is Alpha/Rank.
//
// Modules are named as in transformers: a parameter's name without its last part, as in "model.layers.0.self_attn.q_proj".
// The patterns are those of PEFT's LoraConfig.
type Adapter struct {
	Rank    int     `json:"rank"` // rows of A and columns of B
	Alpha   float64 `json:"alpha"`
	Dropout float64 `json:"dropout,omitempty"`
	// Targets are the linear layers that have an adapter: AllLinear, or names, ends of names after a dot, or regular
	// expressions that match a whole name.
	Targets []string `json:"targets"`
	RSLoRA  bool     `json:"rslora,omitempty"` // s is Alpha/√Rank (arXiv 2312.03732)
	// DoRA also trains the norm of each row of the sum of W and s·B·A (arXiv 2402.09353).
	DoRA bool `json:"dora,omitempty"`
	// RankPattern and AlphaPattern have other ranks and alphas for modules whose name, or its end after a dot, matches the
	// regular expression.
	RankPattern  map[string]int     `json:"rank_pattern,omitempty"`
	AlphaPattern map[string]float64 `json:"alpha_pattern,omitempty"`
	// Save are modules, named like Targets, that are trained whole.
	Save []string `json:"save,omitempty"`
}

// AllLinear, as the only target, stands for all linear layers except the head.
const AllLinear = "all-linear"

// The ends of the names of an adapter's parameters, after the module's name.
const (
	AdapterA         = ".lora_A.weight"
	AdapterB         = ".lora_B.weight"
	AdapterMagnitude = ".lora_magnitude_vector"
)

// headModule is the module of the projection to the vocabulary, also if it uses the embedding's weight.
const headModule = "lm_head"

// AdapterError means that an adapter is impossible, or does not fit its model. It wraps ErrModel.
type AdapterError struct {
	Key    string // the field, by its JSON name
	Reason string
}

func (e *AdapterError) Error() string {
	return fmt.Sprintf("%v: adapter.%s: %s", ErrModel, e.Key, e.Reason)
}

func (e *AdapterError) Unwrap() error { return ErrModel }

func adapterError(key, format string, args ...any) error {
	return &AdapterError{key, fmt.Sprintf(format, args...)}
}

// check checks what does not depend on the model.
func (a *Adapter) check() error {
	isAlpha := func(v float64) bool { return v > 0 && v <= maxAdapterAlpha }
	switch {
	case a.Rank < 1 || a.Rank > MaxAdapterRank:
		return adapterError("rank", "%d: it must be from 1 to %d", a.Rank, MaxAdapterRank)
	case !isAlpha(a.Alpha):
		return adapterError("alpha", "%g: it must be more than 0, up to %g", a.Alpha, float64(maxAdapterAlpha))
	case !(a.Dropout >= 0 && a.Dropout < 1):
		return adapterError("dropout", "%g: it must be at least 0 and below 1", a.Dropout)
	case a.DoRA && a.Dropout > 0:
		return adapterError("dropout", "%g: dora = true supports no dropout: leave one of them out", a.Dropout)
	case len(a.Targets) == 0:
		return adapterError("targets", "the list is empty: name modules, or use %q", AllLinear)
	case len(a.Targets) > 1 && slices.Contains(a.Targets, AllLinear):
		return adapterError("targets", "%q includes all linear layers: leave the other %d entries out", AllLinear, len(a.Targets)-1)
	}
	for _, key := range slices.Sorted(maps.Keys(a.RankPattern)) {
		if r := a.RankPattern[key]; r < 1 || r > MaxAdapterRank {
			return adapterError("rank_pattern", "%q has rank %d: it must be from 1 to %d", key, r, MaxAdapterRank)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(a.AlphaPattern)) {
		if v := a.AlphaPattern[key]; !isAlpha(v) {
			return adapterError("alpha_pattern", "%q has alpha %g: it must be more than 0, up to %g", key, v, float64(maxAdapterAlpha))
		}
	}
	return nil
}

// scale returns s for a module.
func (a *Adapter) scale(rank int, alpha float64) float64 {
	if a.RSLoRA {
		return alpha / math.Sqrt(float64(rank))
	}
	return alpha / float64(rank)
}

// Module returns the module of a parameter: its name without the last part.
func (p *Param) Module() string { return moduleOf(p.Name) }

func moduleOf(name string) string {
	if at := strings.LastIndexByte(name, '.'); at >= 0 {
		return name[:at]
	}
	return name
}

// modulesOf returns the names under which patterns find a parameter's module: its own, and that of the tensor of the model's files
// that has it.
func modulesOf(p *Param) []string {
	if p.Stored.Name != "" {
		return []string{p.Module(), moduleOf(p.Stored.Name)}
	}
	return []string{p.Module()}
}

// adapt freezes the base and adds the adapter's parameters after all others, in the order of the layers.
func (m *Model) adapt() error {
	a := m.Config.Adapter
	if a == nil {
		return nil
	}
	match, err := newAdapterMatch(a)
	if err != nil {
		return err
	}
	for _, p := range m.Params {
		p.Frozen = p.Constant || p.Fixed || !match.saves(modulesOf(p))
	}
	if err := match.savesAll(m); err != nil {
		return err
	}
	for _, l := range m.layers {
		_, isHead := l.(*head)
		for _, lin := range l.linears() {
			names := modulesOf(lin.w.param)
			if isHead {
				names = []string{headModule}
			}
			match.see(names[0])
			if !match.targets(names, isHead) || !lin.w.frozen() {
				continue
			}
			rank, alpha, err := match.sizes(names)
			if err != nil {
				return err
			}
			if a.DoRA && (isHead || lin.inOut) {
				return adapterError("dora",
					"%s cannot have one: it is the head, or its weight is stored by inputs; leave dora out, or choose other targets",
					names[0])
			}
			m.addAdapter(lin, l, names[0], rank, alpha)
		}
		if b := blockOf(l); b != nil {
			if x, ok := b.ffn.(*expertFFN); ok {
				if err := m.adaptExperts(match, x); err != nil {
					return err
				}
			}
		}
	}
	if err := match.used(m); err != nil {
		return err
	}
	m.froze = true
	return nil
}

// addAdapter adds the adapter of a linear layer. Tensor parallelism splits B like the layer's outputs, or A like its inputs; the
// other one is whole on every rank, and its gradients are parts of a sum.
func (m *Model) addAdapter(lin *linear, of layer, module string, rank int, alpha float64) {
	w := lin.w.param
	outDim, inDim := 0, 1
	if lin.inOut {
		outDim, inDim = 1, 0
	}
	in, out := w.Whole[inDim], w.Whole[outDim]
	// Uniform in ±1/√in: PyTorch's kaiming_uniform with a = √5.
	bound := 1 / math.Sqrt(float64(in))
	a := m.Config.Adapter
	ad := &adapter{rank: rank, alpha: alpha, scale: a.scale(rank, alpha), in: in, drop: site{"adapter/" + module, a.Dropout}}
	_, ad.ofHead = of.(*head)
	if d, ok := of.(*mtp); ok {
		ad.residual = lin == &d.proj
	}
	ad.a = m.adapterParam(module+AdapterA, Init{Uniform: bound}, rank, in)
	ad.b = m.adapterParam(module+AdapterB, zeros, out, rank)
	switch s := w.Split; {
	case s.Units == 0:
		ad.a, ad.b = parted(ad.a, w.sum), parted(ad.b, w.sum)
	case s.Dim == outDim:
		ad.a, ad.b = parted(ad.a, byHeads), m.cut(ad.b, Split{0, s.Sections, s.Units})
	default:
		ad.a, ad.b = m.cut(ad.a, Split{1, s.Sections, s.Units}), parted(ad.b, byHeads)
		ad.from = ad.a.param.Slice.From
	}
	if m.Config.Adapter.DoRA {
		ad.dora = &dora{magnitude: m.adapterParam(module+AdapterMagnitude, ones, out), part: w.Split.Units > 0 && w.Split.Dim != outDim &&
			m.tensor.size() > 1}
		if s := w.Split; s.Units > 0 && s.Dim == outDim {
			ad.dora.magnitude = m.cut(ad.dora.magnitude, Split{0, s.Sections, s.Units})
		} else {
			ad.dora.magnitude = parted(ad.dora.magnitude, ad.b.param.sum)
		}
	}
	lin.adapter = ad
}

func (m *Model) adapterParam(name string, init Init, shape ...int) use {
	u := m.add(name, init, shape...)
	u.param.Adapter = true
	return u
}
