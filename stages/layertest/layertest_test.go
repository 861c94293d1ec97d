package layertest_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/troupe-ml/troupe/stages"
	"github.com/troupe-ml/troupe/stages/layertest"
	"github.com/troupe-ml/troupe/tensorops"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type tensors = []tensorops.Tensor

// rows is the usual input.
var rows = layertest.Options{Inputs: []layertest.Tensor{{Name: "x", Shape: []int{layertest.B, 6}}}}

func must[L stages.Layer](l L, err error) stages.Layer {
	if err != nil {
		panic(err)
	}
	return l
}

// TestRight: layers that are right pass.
func TestRight(t *testing.T) {
	labels := []layertest.Tensor{{Name: "y", Shape: []int{layertest.B}, DType: tensorops.Int32, Classes: 6}}
	targets := []layertest.Tensor{{Name: "y", Shape: []int{layertest.B, 6}}}
	with := func(o layertest.Options, fields []layertest.Tensor) layertest.Options {
		o.Fields = fields
		return o
	}
	ids := layertest.Tensor{Shape: []int{layertest.B}, DType: tensorops.Int32, Classes: 6}
	for name, c := range map[string]struct {
		layer stages.Layer
		o     layertest.Options
	}{
		"dense":              {stages.NewDense(6, 5, "", 0), rows},
		"dense with GELU":    {stages.NewDense(6, 5, "gelu", 0.3), rows},
		"dense with tanh":    {stages.NewDense(6, 5, "tanh", 0.3), rows},
		"relu, with a kink":  {stages.NewActivation("relu"), rows},
		"norm":               {stages.NewLayerNorm(6), rows},
		"dropout":            {stages.NewDropout(0.5), rows},
		"embedding":          {must(stages.NewEmbed("y", 6, 4)), layertest.Options{Fields: labels}},
		"cross-entropy":      {stages.NewCrossEntropy("y", 6), with(rows, labels)},
		"mean squared error": {stages.NewMSE("y"), with(rows, targets)},
		"both ways": {&crossing{}, layertest.Options{Inputs: []layertest.Tensor{rows.Inputs[0],
			{Shape: []int{layertest.B, 6}, Scale: 0.5}}}},
		"pick":   {&pick{}, layertest.Options{Inputs: []layertest.Tensor{rows.Inputs[0], ids}}},
		"opened": {&opened{scaled: scaled{}}, rows},
		"scaled": {&scaled{}, rows},
	} {
		t.Run(name, func(t *testing.T) { layertest.Check(t, c.layer, c.o) })
	}
}

// crossing has two inputs and two outputs, of which one is what it was given: y0 = x0 + x1, y1 = x0.
type crossing struct{}

func (*crossing) Params() []stages.LayerParam { return nil }
func (*crossing) Outputs() int                { return 2 }

func (*crossing) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	y := p.AllocLike(in[0])
	p.Add(y, in[0], in[1])
	return tensors{y, in[0]}
}

func (*crossing) InputGrad(p *stages.Pass, _, dout []tensorops.Tensor) []tensorops.Tensor {
	dx := p.AllocLike(dout[0])
	p.Add(dx, dout[0], dout[1])
	return tensors{dx, dout[0]}
}

func (*crossing) WeightGrad(*stages.Pass, []tensorops.Tensor, []tensorops.Tensor) {}

// pick takes a column of each row, by an index, and returns the index too. Its weight is the rest.
type pick struct{}

func (*pick) Params() []stages.LayerParam { return []stages.LayerParam{{Name: "b", Shape: []int{6}}} }
func (*pick) Outputs() int                { return 2 }
func (*pick) NoGrad(out int) bool         { return out == 1 }
func (*pick) WholeBackward() bool         { return true }

func (*pick) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	y := p.Alloc(tensorops.Float32, in[0].Rows())
	p.Call("pick", tensors{in[0], in[1], p.Weight(0)}, tensors{y}, func(reads, writes []tensorops.Array) error {
		for r, c := range reads[1].Int {
			writes[0].Float[r] = reads[0].Float[6*r+int(c)] + reads[2].Float[c]
		}
		return nil
	})
	return tensors{y, in[1]}
}

func (*pick) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	dx := p.AllocLike(in[0])
	p.Fill(dx, 0)
	p.Call("pick gradient", tensors{dout[0], in[1]}, tensors{dx, p.Grad(0)}, func(reads, writes []tensorops.Array) error {
		for r, c := range reads[1].Int {
			writes[0].Float[6*r+int(c)] += reads[0].Float[r]
			writes[1].Float[c] += reads[0].Float[r]
		}
		return nil
	})
	return tensors{dx}
}

func (*pick) WeightGrad(*stages.Pass, []tensorops.Tensor, []tensorops.Tensor) {
	panic("it is a whole layer")
}

// scaled is y = w·x² + b, in Go, with the mistakes that tests ask for.
type scaled struct {
	mistake string
	saved   tensorops.Tensor
	count   int
	samples int
}

func (l *scaled) Params() []stages.LayerParam {
	l.count++
	name := "w"
	if l.mistake == "parameters change" {
		name = fmt.Sprint("w", l.count)
	}
	return []stages.LayerParam{{Name: name, Shape: []int{6}, Init: stages.Init{Const: 1}}, {Name: "b", Shape: []int{6}}}
}

func (l *scaled) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	x, y := in[0], p.AllocLike(in[0])
	switch l.mistake {
	case "state in the layer":
		l.saved = x
	case "a number in the layer":
		l.samples = p.Samples()
	case "leak":
		p.AllocLike(x)
	case "leak without training":
		if !p.Train() {
			p.AllocLike(x)
		}
	case "writes to its input":
		p.Fill(x, 1)
	case "writes to its weight":
		p.Fill(p.Weight(1), 0)
	case "frees its input":
		defer p.Free(x)
	case "wrong output":
		return tensors{p.Weight(0), y}
	case "panics":
		panic("out of ideas")
	case "needs training":
		if !p.Train() {
			p.Fail(errors.New("only for training"))
		}
	case "looks":
		if tensorops.Elements[float32](x)[0] > 100 {
			return nil
		}
	case "NaN":
		p.Fill(y, math.NaN())
		return tensors{y}
	case "other shape":
		if !p.Train() {
			y = y.View(y.Len())
		}
	}
	l.count++
	extra := float32(0)
	if l.mistake == "counts" {
		extra = float32(l.count)
	}
	p.Call("scale", tensors{x, p.Weight(0), p.Weight(1)}, tensors{y}, func(reads, writes []tensorops.Array) error {
		if l.mistake == "counts in a call" {
			l.count++
			extra = float32(l.count)
		}
		for i, v := range reads[0].Float {
			writes[0].Float[i] = reads[1].Float[i%6]*v*v + reads[2].Float[i%6] + extra
			if l.mistake == "rough" {
				writes[0].Float[i] += float32(math.Sin(1e6 * float64(writes[0].Float[i])))
			}
		}
		return nil
	})
	p.Save(0, x)
	return tensors{y}
}

func (l *scaled) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	dx, factor := p.AllocLike(in[0]), float32(2)
	switch l.mistake {
	case "wrong sign":
		factor = -2
	case "forgotten factor":
		factor = 1
	case "no gradient":
		return nil
	case "gradient of a wrong shape":
		return tensors{p.Alloc(tensorops.Float32, 6, in[0].Rows())}
	case "writes to its gradient":
		p.Fill(dout[0], 1)
	case "weight gradient too early":
		p.ColSum(p.Grad(1), dout[0])
	case "zero":
		p.Fill(dx, 0)
		return tensors{dx}
	}
	x := in[0]
	if l.mistake == "state in the layer" {
		x = l.saved
	}
	p.Call("scale gradient", tensors{x, p.Weight(0), dout[0]}, tensors{dx}, func(reads, writes []tensorops.Array) error {
		for i, v := range reads[0].Float {
			writes[0].Float[i] = factor * v * reads[1].Float[i%6] * reads[2].Float[i]
		}
		if l.mistake == "a border" {
			writes[0].Float[0] = 0.5
		}
		return nil
	})
	if l.mistake == "weight gradient of saved" {
		p.Save(1, dx)
	}
	return tensors{dx}
}

func (l *scaled) WeightGrad(p *stages.Pass, in, dout []tensorops.Tensor) {
	if l.mistake != "gradient of a parameter missing" && l.mistake != "weight gradient too early" {
		p.ColSum(p.Grad(1), dout[0])
	}
	rows := in[0].Rows()
	if l.mistake == "a number in the layer" {
		rows = l.samples
	}
	if l.mistake == "split differs" && !slices.ContainsFunc(p.Ops(), func(o tensorops.Op) bool {
		return o.Kind == tensorops.KindCall && strings.HasSuffix(o.Call().Name, "scale gradient")
	}) {
		rows-- // where InputGrad is in another list
	}
	p.Call("scale weight gradient", tensors{in[0], dout[0]}, tensors{p.Grad(0)}, func(reads, writes []tensorops.Array) error {
		if l.mistake == "forgotten accumulate" {
			clear(writes[0].Float)
		}
		for i := range 6 * min(rows, len(reads[0].Float)/6) {
			v := reads[0].Float[i]
			if l.mistake == "forgotten term" && i%2 == 0 {
				continue
			}
			writes[0].Float[i%6] += v * v * reads[1].Float[i]
		}
		return nil
	})
}

// opened needs closing.
type opened struct {
	scaled
	open bool
	err  error
}

func (l *opened) Open() (stages.OpenLayer, error) {
	o := &opened{scaled: l.scaled, open: true, err: l.err}
	return o, nil
}

func (l *opened) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	if !l.open {
		p.Fail(errors.New("it is not open"))
	}
	return l.scaled.Forward(p, in)
}

func (l *opened) Close() error {
	l.open = false
	return l.err
}

// tensorOps is y = x·w + gelu(x), by the device's operations, with a small term that may be missing.
type tensorOps struct{ forget bool }

func (*tensorOps) Params() []stages.LayerParam {
	return []stages.LayerParam{{Name: "w", Shape: []int{6, 6}, Init: stages.Init{Std: 0.4}}}
}

func (*tensorOps) Forward(p *stages.Pass, in []tensorops.Tensor) []tensorops.Tensor {
	y, g := p.AllocLike(in[0]), p.AllocLike(in[0])
	p.MatMul(y, in[0], p.Weight(0), tensorops.MatMulOpts{})
	p.GELU(g, in[0])
	p.Add(y, y, g)
	p.Free(g)
	return tensors{y}
}

func (l *tensorOps) InputGrad(p *stages.Pass, in, dout []tensorops.Tensor) []tensorops.Tensor {
	dx, g := p.AllocLike(in[0]), p.AllocLike(in[0])
	p.MatMul(dx, dout[0], p.Weight(0), tensorops.MatMulOpts{TransB: true})
	p.GELUGrad(g, dout[0], in[0])
	if !l.forget {
		p.Add(dx, dx, g)
	}
	p.Free(g)
	return tensors{dx}
}

func (*tensorOps) WeightGrad(p *stages.Pass, in, dout []tensorops.Tensor) {
	p.MatMul(p.Grad(0), in[0], dout[0], tensorops.MatMulOpts{TransA: true, Accumulate: true})
}

// recorder is a test that only notes its errors.
type recorder struct {
	testing.TB
	errors []string
}

func (*recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// TestWrong: each mistake is found, under its name.
func TestWrong(t *testing.T) {
	for mistake, says := range map[string]string{
		"wrong sign":                      "gradient: of input 0 (x), float32[3 6]: element ~; 18 of 18 elements are wrong. The sign is wrong",
		"forgotten factor":                "gradient: of input 0 (x), ~ It is 0.5 times the correct value",
		"zero":                            "gradient: of input 0 (x), ~ InputGrad leaves it out",
		"a border":                        "gradient: of input 0 (x), float32[3 6]: element [0 0] of the gradient is 0.5, ~; 1 of 18 elements are wrong. The other elements are correct",
		"forgotten term":                  `gradient: of parameter 0 ("w"), float32[6]: element [~] of the gradient is 0, ~; 3 of 6 elements are wrong. It is 0 although the output depends on the parameter`,
		"gradient of a parameter missing": `gradient: of parameter 1 ("b"), ~ 6 of 6 elements are wrong. It is 0 although the output depends on the parameter: WeightGrad`,
		"rough":                           "gradient: of input 0 (x), ~ cannot be judged",
		"forgotten accumulate":            `accumulation: gradient of parameter "w": element [0] is ~ WeightGrad must add to Pass.Grad`,
		"state in the layer":              "in flight: ~ never in the layer",
		"a number in the layer":           `in flight: gradient of parameter "w": ~ never in the layer`,
		"split differs":                   `split: gradient of parameter "w": ~ right after InputGrad and later`,
		"counts":                          "repetition: output 0 of microbatch 0: element [0 0] is ~ The same input must give the same result",
		"counts in a call":                "repetition: output 0 of microbatch 0: element [0 0] is ~ The same input must give the same result",
		"leak":                            "memory: 288 more bytes are in use after F0 B0 F1 B1 F2 B2 than before or: memory: ~ more bytes are in use after F0 B0 F1 B1 F2 B2 than before",
		"leak without training":           "memory: ~ after V0 V1 V2 than before",
		"writes to its input":             "unchanged: Forward writes to input 0 (x): element ~, it was ~ Allocate an output with p.AllocLike",
		"writes to its weight":            `unchanged: Forward writes to the weight "b": element ~ Only the optimizer`,
		"writes to its gradient":          "unchanged: InputGrad writes to the gradient of output 0: ~ Allocate an output with p.AllocLike",
		"weight gradient too early":       `unchanged: InputGrad writes to Grad(1), the gradient of "b": ~ WholeBackward must return true`,
		"frees its input":                 "forward: forward of microbatch 0, ~ it freed float32[3 6], which it got as an input",
		"wrong output":                    "forward: forward of microbatch 0, ~ layer layer, forward of microbatch 0: ~ it returned 2 outputs, want 1",
		"panics":                          "forward: ~ layer layer, forward of microbatch 0: panic: out of ideas",
		"NaN":                             "forward: ~ output 0 has not a finite number",
		"no gradient":                     "forward: ~ it returned no gradient of input 0",
		"gradient of a wrong shape":       "forward: ~ it returned a gradient of float32[6 3] for input 0 of float32[3 6]",
		"needs training":                  "forward only: ~ only for training",
		"other shape":                     "forward only: output 0 of microbatch 0 is float32[18], in training float32[3 6]",
		"looks":                           "recording: ~ only in a Call",
		"parameters change":               "parameters: Params returns other parameters",
	} {
		t.Run(mistake, func(t *testing.T) { found(t, &scaled{mistake: mistake}, rows, says) })
	}
	t.Run("a term of the device's operations", func(t *testing.T) {
		layertest.Check(t, &tensorOps{}, rows)
		found(t, &tensorOps{forget: true}, rows, "gradient: of input 0 (x), ~ A term is missing")
	})
	t.Run("closing", func(t *testing.T) {
		found(t, &opened{err: errors.New("stuck")}, rows, "closing: close layer layer: stuck")
	})
	t.Run("no field", func(t *testing.T) {
		found(t, stages.NewCrossEntropy("y", 6), rows, `forward: ~ it reads the field "y", which Options.Fields does not describe`)
	})
	t.Run("a shape", func(t *testing.T) {
		found(t, &scaled{}, layertest.Options{Name: "mine", Inputs: []layertest.Tensor{{Shape: []int{0}}}},
			"mine: forward: input 0: input 0 has shape [0]")
	})
	t.Run("nil", func(t *testing.T) { found(t, nil, rows, "forward: the layer is nil") })
}

// found checks a layer and looks for an error. In says ~ stands for anything, and " or: " between two of which
// one is enough.
func found(t *testing.T, l stages.Layer, o layertest.Options, says string) {
	t.Helper()
	r := &recorder{}
	layertest.Check(r, l, o)
	for _, e := range r.errors {
		for _, option := range strings.Split(says, " or: ") {
			if matches(e, option) {
				return
			}
		}
	}
	t.Errorf("nothing says %q, but:\n%s", says, strings.Join(r.errors, "\n"))
}

func matches(text, pattern string) bool {
	for part := range strings.SplitSeq(pattern, "~") {
		_, after, ok := strings.Cut(text, part)
		if !ok {
			return false
		}
		text = after
	}
	return true
}
