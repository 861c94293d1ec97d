package stages_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

var (
	pixels  = stages.Field{Name: "x", Shape: []int{2, 3}}
	label   = stages.Field{Name: "y", DType: tensorops.Int32, Classes: 4}
	numbers = stages.Field{Name: "y", Shape: []int{2}}
)

// TestFamilies: what the families of other data than text are made of.
func TestFamilies(t *testing.T) {
	for _, c := range []struct {
		config  stages.Config
		symbols string
		weights int64
	}{
		{stages.Config{Family: stages.MLP, Layers: 2, Hidden: 5, Fields: []stages.Field{pixels, label}}, "EtttL", 6*5 + 5 + 5*5 + 5 + 5*4 + 4},
		{stages.Config{Family: stages.MLP, Layers: 1, Hidden: 5, Fields: []stages.Field{label, pixels}}, "EttL", 6*5 + 5 + 5*4 + 4},
		{stages.Config{Family: stages.MLP, Layers: 0, Hidden: 5, Fields: []stages.Field{pixels, numbers}}, "EtL", 6*2 + 2},
		{stages.Config{Family: stages.Stack, Layout: []string{"input", "dense out=7 act=relu", "norm", "tanh", "dropout p=0.5", "dense out=4",
			"cross_entropy"},
			Fields: []stages.Field{pixels, label}}, "EtttttL", 6*7 + 7 + 14 + 7*4 + 4},
		{stages.Config{Family: stages.Stack, Layout: []string{"embed field=y out=3", "dense out=2", "mse field=z"},
			Fields: []stages.Field{label, {Name: "z", Shape: []int{2}}}}, "EtL", 4*3 + 3*2 + 2},
	} {
		m := newModel(t, c.config)
		if m.Symbols() != c.symbols || m.Parameters() != c.weights {
			t.Errorf("%+v: %s with %d weights, want %s with %d", c.config, m.Symbols(), m.Parameters(), c.symbols, c.weights)
		}
		if _, err := m.Shapes(3); err != nil {
			t.Errorf("%+v: %v", c.config, err)
		}
		text, err := c.config.HF()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := stages.ParseHF(text); err != nil || !reflect.DeepEqual(got, c.config) {
			t.Errorf("%s\nis read as %+v, %v", text, got, err)
		}
	}
}

// TestFamiliesRefused: each mistake is an error that says where it is.
func TestFamiliesRefused(t *testing.T) {
	stack := func(layers ...string) stages.Config {
		return stages.Config{Family: stages.Stack, Layout: layers, Fields: []stages.Field{pixels, label}}
	}
	for _, c := range []struct {
		config stages.Config
		says   string
	}{
		{stages.Config{Family: "mpl"}, `unknown family "mpl": choose one of ["gpt2" "llama" "mistral" "qwen2" "qwen3" `},
		{stages.Config{Family: stages.MLP, Fields: []stages.Field{pixels}}, "an mlp needs features and a label or a target"},
		{stages.Config{Family: stages.MLP, Hidden: 4, Fields: []stages.Field{{Name: "x", Shape: []int{-1}}, label}}, `field "x" has shape [-1]`},
		{stages.Config{Family: stages.MLP, Layers: -1}, "layers is -1"},
		{stages.Config{Family: stages.MLP, Dropout: 1}, "dropout is 1"},
		{stages.Config{Family: stages.MLP, Fields: []stages.Field{{Name: "x", Shape: []int{0}}}},
			`field "x" of the data has an impossible shape or number of classes: [0]`},
		{stack(), "model.stack names no layers"},
		{stack("input", ""), "a layer of the stack is empty"},
		{stack("input", "dense out"), `"out" in layer "dense out": write options as key=value`},
		{stack("input", "dense out=3 out=3"), "each once"},
		{stack("input", "dense out=many", "mse"), "out=many is not a whole number"},
		{stack("input", "dense width=3", "mse"), `unknown option "width"`},
		{stack("input", "dropout p=x", "mse"), "p=x is not a number"},
		{stack("input", "dropout p=NaN", "mse"), "p=NaN is not a number"},
		{stack("input", "dropout p=1", "mse"), "p=1 must be at least 0 and below 1"},
		{stack("input", "dense out=3 dropout=-0.5", "mse"), "dropout=-0.5 must be at least 0 and below 1"},
		{stack("input", "dense out=3", "input", "mse"), "only the first layer may do"},
		{stages.Config{Family: stages.Stack, Fields: []stages.Field{{Name: "x", Shape: []int{1 << 30, 1 << 30}}}},
			"more than 17179869184 elements"},
		{stack("input field=z", "mse"), `the data has no field "z"; it has ["x" "y"]`},
		{stack("input field=y", "mse"), `field "y" is int32, but input takes numbers: use embed for ids`},
		{stack("input", "danse out=3", "mse"), `unknown kind of layer "danse"`},
		{stack("input", "dense out=3"), "the model has no loss"},
		{stack("input", "cross_entropy", "dense out=3"), `comes after the loss`},
		{stack("input", "dense out=0", "norm"), "the width of its input is unknown"},
		{stack("embed field=y out=0", "cross_entropy"), "want 1 to"},
	} {
		if _, err := stages.NewModel(c.config); !errors.Is(err, stages.ErrModel) {
			t.Errorf("%+v: error %v", c.config, err)
		} else if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: error %v, want %q in it", c.config, err, c.says)
		}
	}
}

// TestOutputs: what layers give out is collected where anybody asks for it.
func TestOutputs(t *testing.T) {
	m := newModel(t, stages.Config{Family: "test-branches", Fields: branchFields})
	dev, err := cpu.New(cpu.Options{Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dev.Close)
	p := newGraphPipe(t, dev, m, nil)
	before := dev.Memory().InUse
	for _, collect := range []bool{false, true} {
		mb, data := graphBatch(0)
		mb.Train, mb.Collect = false, collect
		for _, name := range p.stages[0].Fields(0) {
			mb.Fields = append(mb.Fields, data[name])
		}
		if err := p.run(0, func(l *tensorops.List) { p.stages[0].Forward(l, 0, &mb) }); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, o := range p.stages[0].Outputs(0, 0) {
			names = append(names, o.Name)
			if err := o.Check(); err != nil || o.Shape[0] != 5 {
				t.Errorf("%s: %v, %v", o.Name, o.Shape, err)
			}
		}
		if want := []string{"hidden", "logits"}; collect && !reflect.DeepEqual(names, want) || !collect && names != nil {
			t.Errorf("collected %q", names)
		}
		p.stages[0].Finish(0, 0)
	}
	if got := dev.Memory().InUse; got != before {
		t.Errorf("%d bytes are in use, %d before", got, before)
	}
}
