package stages

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/caught"
	"github.com/troupe-ml/troupe/internal/base/registry"
	"github.com/troupe-ml/troupe/tensorops"
)

// Family builds a model from its sizes by adding layers to g. The same sizes must always give the
// same layers, in every process.
type Family func(g *Graph, c Config) error

// LayerOptions holds the options from which a layer of a stack is built.
type LayerOptions struct {
	Config Config // sizes of the model
	Width  int    // size of the last dimension of its input; 0: unknown
	words  []string
	given  map[string]string
	used   map[string]bool
	err    error
}

// Widths is an optional interface of a Layer: Width returns the size of its output's last
// dimension. A layer without it is assumed to have an output as wide as its input.
type Widths interface{ Width() int }

var (
	families = registry.New[Family]("family", append(LanguageFamilies(), MLP, Stack)...)
	// of layers, this package's
	kinds  = []string{"input", "embed", "dense", "gelu", "relu", "tanh", "norm", "dropout", "cross_entropy", "mse"}
	layers = registry.New[func(*LayerOptions) (Layer, error)]("layer", kinds...)
)

// RegisterFamily adds a family of models, which a config may name as model.family.
//
// Call RegisterFamily and RegisterLayer at the start of the program, in an init function or at the
// top of main, before anything else is called. All processes of a cluster must register the same.
// Both panic if the name is not a plain lower-case word of at most 64 bytes, or is taken.
func RegisterFamily(name string, f Family) { families.Add(name, f) }

// RegisterLayer adds a kind of layer, which model.stack may name:
//
//	[model]
//	family = "stack"
//	stack = ["input field=x", "dense out=64", "mine strength=0.5", "dense out=10", "cross_entropy"]
//
// build makes the layer from its options. A LossLayer can only be the last layer; a layer without
// inputs, which reads fields, only the first.
func RegisterLayer(name string, build func(o *LayerOptions) (Layer, error)) { layers.Add(name, build) }

// Families returns the names of all families.
func Families() []string {
	return append(append(LanguageFamilies(), MLP, Stack), families.Names()...)
}

// Int returns the value of an integer option, or the default if the option is not given.
func (o *LayerOptions) Int(name string, otherwise int) int {
	n, err := strconv.Atoi(o.String(name, strconv.Itoa(otherwise)))
	if err != nil {
		o.fail("%s=%s is not a whole number", name, o.given[name])
	}
	return n
}

// Float returns the value of a numeric option, or the default if the option is not given.
func (o *LayerOptions) Float(name string, otherwise float64) float64 {
	n, err := strconv.ParseFloat(o.String(name, strconv.FormatFloat(otherwise, 'g', -1, 64)), 64)
	if err != nil || math.IsNaN(n) || math.IsInf(n, 0) {
		o.fail("%s=%s is not a number", name, o.given[name])
	}
	return n
}

// share returns a dropout probability.
func (o *LayerOptions) share(name string, otherwise float64) float64 {
	n := o.Float(name, otherwise)
	if n < 0 || n >= 1 {
		o.fail("%s=%s must be at least 0 and below 1", name, o.given[name])
	}
	return n
}

// String returns the value of an option, or the default if the option is not given.
func (o *LayerOptions) String(name, otherwise string) string {
	o.used[name] = true
	if v, ok := o.given[name]; ok {
		return v
	}
	return otherwise
}

func (o *LayerOptions) fail(format string, args ...any) {
	if o.err == nil {
		o.err = fmt.Errorf("%w: "+format, append([]any{ErrModel}, args...)...)
	}
}

// parse reads "name key=value …".
func (o *LayerOptions) parse(text string) (kind string, err error) {
	o.words, o.given, o.used = strings.Fields(text), make(map[string]string), make(map[string]bool)
	if len(o.words) == 0 {
		return "", fmt.Errorf("%w: a layer of the stack is empty", ErrModel)
	}
	for _, w := range o.words[1:] {
		key, value, ok := strings.Cut(w, "=")
		if _, twice := o.given[key]; !ok || twice || key == "" {
			return "", fmt.Errorf("%w: %q in layer %q: write options as key=value, each once", ErrModel, w, text)
		}
		o.given[key] = value
	}
	return o.words[0], nil
}

// finish returns the error of the options, if any.
func (o *LayerOptions) finish() error {
	if o.err != nil {
		return o.err
	}
	for key := range o.given {
		if !o.used[key] {
			return fmt.Errorf("%w: unknown option %q", ErrModel, key)
		}
	}
	return nil
}

// Field returns the data's field with the given name, or an ErrModel.
func (c Config) Field(name string) (Field, error) {
	var known []string
	for _, f := range c.Fields {
		if f.Name == name {
			return f, nil
		}
		known = append(known, f.Name)
	}
	return Field{}, fmt.Errorf("%w: the data has no field %q; it has %q", ErrModel, name, known)
}

// size returns the number of elements of a field, which must have the same shape in all samples.
func (f Field) size() (int, error) {
	n := 1
	for _, d := range f.Shape {
		if d < 1 || d > MaxHidden/n {
			return 0, fmt.Errorf("%w: field %q has shape %v, but a dense layer needs 1 to %d numbers, the same number in every sample", ErrModel,
				f.Name,
				f.Shape, MaxHidden)
		}
		n *= d
	}
	return n, nil
}

// buildOwn builds a model of a family that is not a language model.
func (m *Model) buildOwn() error {
	f, ok := families.Get(m.Config.Family)
	switch {
	case m.Config.Family == MLP:
		f = buildMLP
	case m.Config.Family == Stack:
		f = buildStack
	case !ok:
		return fmt.Errorf("%w: unknown family %q", ErrModel, m.Config.Family)
	}
	if err := m.build(f); err != nil {
		return fmt.Errorf("family %q: %w", m.Config.Family, err)
	}
	return nil
}

// Build makes a model of a family that need not be registered, for example a single layer for a
// test.
func Build(c Config, f Family) (*Model, error) {
	if err := c.validateSizes(); err != nil {
		return nil, err
	}
	m := &Model{Config: c}
	if err := m.build(f); err != nil {
		return nil, err
	}
	return m, nil
}

// build runs a family's function. It turns a panic of the function, or of a layer that it calls,
// into an error.
func (m *Model) build(f Family) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%w: %w", ErrModel, caught.Panic(v))
		}
	}()
	g := &Graph{model: m, names: make(map[string]bool)}
	if err := f(g, m.Config); err != nil {
		return err
	}
	return g.check()
}

// validateOwn checks the sizes of such a model if they are given. Their meaning depends on the
// family.
func (c Config) validateOwn() error {
	if _, ok := families.Get(c.Family); !ok && c.Family != MLP && c.Family != Stack {
		return fmt.Errorf("%w: unknown family %q: choose one of %q", ErrModel, c.Family, Families())
	}
	return c.validateSizes()
}

func (c Config) validateSizes() error {
	for _, f := range []struct {
		name            string
		value, min, max int
	}{
		{"layers", c.Layers, 0, MaxLayers}, {"hidden", c.Hidden, 0, MaxHidden}, {"heads", c.Heads, 0, MaxHeads},
		{"ffn", c.FFN, 0, MaxFFN}, {"context", c.Context, 0, MaxContext}, {"vocab", c.Vocab, 0, MaxVocab},
		{"fields", len(c.Fields), 0, MaxFields}, {"options", len(c.Options) + len(c.Layout), 0, maxOptions},
	} {
		if f.value < f.min || f.value > f.max {
			return fmt.Errorf("%w: %s is %d: it must be from %d to %d", ErrModel, f.name, f.value, f.min, f.max)
		}
	}
	if !(c.Dropout >= 0 && c.Dropout < 1) {
		return fmt.Errorf("%w: dropout is %g: it must be at least 0 and below 1", ErrModel, c.Dropout)
	}
	for _, f := range c.Fields {
		n := 1
		for _, d := range f.Shape {
			if d == -1 {
				d = max(c.Context, 1)
			}
			if d > 0 && n > maxLayerParam/d {
				return fmt.Errorf("%w: field %q has shape %v: a sample has more than %d elements", ErrModel, f.Name, f.Shape, maxLayerParam)
			}
			n *= max(d, 1)
		}
		if f.Name == "" || len(f.Shape) >= tensorops.MaxRank || f.Classes < 0 || f.Classes > MaxVocab ||
			slices.ContainsFunc(f.Shape, func(d int) bool { return d < -1 || d == 0 || d > tensorops.MaxDim }) {
			return fmt.Errorf("%w: field %q of the data has an impossible shape or number of classes: %v, %d", ErrModel, f.Name, f.Shape, f.Classes)
		}
	}
	return nil
}

// buildMLP builds a multilayer perceptron: model.layers hidden layers of width model.hidden, each
// followed by GELU and dropout, then one layer that outputs the classes, or the target's numbers.
// It learns the field with classes, or the last field if none has classes.
func buildMLP(g *Graph, c Config) error {
	if len(c.Fields) < 2 {
		return fmt.Errorf("%w: the data has %d fields, but an mlp needs features and a label or a target", ErrModel, len(c.Fields))
	}
	goal := len(c.Fields) - 1
	if i := slices.IndexFunc(c.Fields, func(f Field) bool { return f.Classes > 0 }); i >= 0 {
		goal = i
	}
	from := c.Fields[0]
	if goal == 0 {
		from = c.Fields[1]
	}
	width, err := from.size()
	if err != nil {
		return err
	}
	x := g.one(g.Embed("input", &flat{inputLayer{from.Name}, width}))
	for i := range c.Layers {
		x = g.one(g.Add(fmt.Sprintf("layers.%d", i), NewDense(width, c.Hidden, Activation("gelu"), c.Dropout), x))
		width = c.Hidden
	}
	if to := c.Fields[goal]; to.Classes > 0 {
		if n, err := to.size(); err != nil || n != 1 {
			return fmt.Errorf("%w: the label %q has the shape %v in each sample, but an mlp predicts one class for a sample: use files with one label for each sample (IDX: of 1 dimension), or a family that predicts more", ErrModel, to.Name, to.Shape)
		}
		x = g.one(g.Add("output", NewDense(width, to.Classes, "", 0), x))
		g.Loss("loss", NewCrossEntropy(to.Name, to.Classes), x)
		return nil
	}
	n, err := c.Fields[goal].size()
	if err != nil {
		return err
	}
	x = g.one(g.Add("output", NewDense(width, n, "", 0), x))
	g.Loss("loss", NewMSE(c.Fields[goal].Name), x)
	return nil
}

// buildStack adds one layer after the other, as Config.Layout names them.
func buildStack(g *Graph, c Config) error {
	if len(c.Layout) == 0 {
		return fmt.Errorf("%w: model.stack names no layers: name some, such as %q", ErrModel,
			[]string{"input field=x", "dense out=10", "cross_entropy"})
	}
	var x []Value
	width := 0
	for i, text := range c.Layout {
		o := &LayerOptions{Config: c, Width: width}
		kind, err := o.parse(text)
		if err != nil {
			return err
		}
		l, err := o.build(kind)
		if err == nil {
			err = o.finish()
		}
		if err != nil {
			return fmt.Errorf("model.stack, layer %d, %q: %w", i, text, err)
		}
		name := fmt.Sprintf("%d.%s", i, kind)
		loss, isLoss := l.(LossLayer)
		if i > 0 && (kind == "input" || kind == "embed") {
			return fmt.Errorf("%w: model.stack, layer %d, %q: it reads data, which only the first layer may do", ErrModel, i, text)
		}
		switch {
		case isLoss:
			g.Loss(name, loss, x...)
		case i == 0:
			x = g.Embed(name, l)
		default:
			x = g.Add(name, l, x...)
		}
		if w, ok := l.(Widths); ok {
			width = w.Width()
		}
	}
	return nil
}

// build makes a layer of a kind.
func (o *LayerOptions) build(kind string) (Layer, error) {
	switch kind {
	case "dense", "norm", "cross_entropy":
		if o.Width < 1 {
			return nil,
				fmt.Errorf("%w: the width of its input is unknown: put a layer such as \"input\" before it; a layer of your own before it must implement Width", ErrModel)
		}
	}
	switch kind {
	case "input":
		f, err := o.field("x")
		if err != nil {
			return nil, err
		}
		if f.DType != tensorops.Float32 {
			return nil, fmt.Errorf("%w: field %q is %v, but input takes numbers: use embed for ids", ErrModel, f.Name, f.DType)
		}
		n, err := f.size()
		return &flat{inputLayer{f.Name}, n}, err
	case "embed":
		f, err := o.field("x")
		if err != nil {
			return nil, err
		}
		if f.DType != tensorops.Int32 {
			return nil, fmt.Errorf("%w: field %q is %v, but embed takes int32 ids: use input for numbers", ErrModel, f.Name, f.DType)
		}
		return NewEmbed(f.Name, o.Int("ids", max(f.Classes, o.Config.Vocab)), o.Int("out", o.Config.Hidden))
	case "dense":
		return NewDense(o.Width, o.Int("out", o.Config.Hidden), Activation(o.String("act", "")), o.share("dropout", 0)), nil
	case "gelu", "relu", "tanh":
		return NewActivation(Activation(kind)), nil
	case "norm":
		return NewLayerNorm(o.Width), nil
	case "dropout":
		return NewDropout(o.share("p", o.Config.Dropout)), nil
	case "cross_entropy":
		f, err := o.field("y")
		if err == nil && (f.DType != tensorops.Int32 || f.Classes > o.Width) {
			err = fmt.Errorf("%w: field %q is %v of %d classes, but cross_entropy takes labels of at most %d classes, the width of its input",
				ErrModel, f.Name,
				f.DType, f.Classes, o.Width)
		}
		return NewCrossEntropy(f.Name, o.Width), err
	case "mse":
		f, err := o.field("y")
		if err == nil && f.DType != tensorops.Float32 {
			err = fmt.Errorf("%w: field %q is %v, but mse takes float32 targets: use cross_entropy for labels", ErrModel, f.Name, f.DType)
		}
		return NewMSE(f.Name), err
	}
	f, ok := layers.Get(kind)
	if !ok {
		return nil, fmt.Errorf("%w: unknown kind of layer %q: choose one of %q", ErrModel, kind,
			append(slices.Clone(kinds), layers.Names()...))
	}
	l, err := f(o)
	if err == nil && l == nil {
		err = fmt.Errorf("%w: its build function returned no layer", ErrModel)
	}
	return l, err
}

func (o *LayerOptions) field(otherwise string) (Field, error) {
	return o.Config.Field(o.String("field", otherwise))
}
