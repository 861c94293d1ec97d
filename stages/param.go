package stages

import "github.com/troupe-ml/troupe/tensorops"

// Init says how a parameter is drawn.
type Init struct {
	Std   float64 // of a normal distribution around 0
	Const float64 // the value, when Std is 0
}

// Param describes one parameter of a model: its identity everywhere, whichever
// rank holds it.
type Param struct {
	Name  string // as the family's checkpoints name it
	Index int    // place in Model.Params
	Shape []int
	Decay bool // weight decay applies (matrices, not norms and biases)
	Init  Init
	Uses  int // 1, or 2 for an embedding tied to the head
}

// Len is the number of elements.
func (p *Param) Len() int {
	n := 1
	for _, d := range p.Shape {
		n *= d
	}
	return n
}

// use is one place where a layer uses a parameter. Each use accumulates its own
// gradient.
type use struct {
	param *Param
	place int // 0, or 1 for the tied head
}

// held is a parameter's memory on a rank.
type held struct {
	param *Param
	w     tensorops.Tensor    // the weight
	g     [2]tensorops.Tensor // the gradient of each use that is on this rank
	rows  *rowGrad            // the first use's instead of g[0], where both are here
	state [2]tensorops.Tensor // AdamW: m and v; SGD: momentum
	// The weight as its linear layer's products read it, where Options.Pack is set.
	packed [numForms]tensorops.Tensor
	owner  bool // reports the norm and is saved: a tied weight's first use
	// A tied weight whose other use is on another rank, and that use's gradient
	// of this step once it has come.
	shared bool
	other  tensorops.Tensor
}
