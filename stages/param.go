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
	Shape []int  // of what a rank has
	Decay bool   // weight decay applies (matrices, not norms and biases)
	Init  Init
	// Frozen: it is not trained. See Model.Freeze.
	Frozen bool

	// Whole is the shape of all of it, Split the rule by which tensor parallelism cuts it, Slice
	// the part of a rank. Without tensor parallelism Shape is Whole.
	Whole []int
	Split Split
	Slice Slice

	sum    gradSum
	places [numPlaces]bool // that use it
}

// Len is the number of elements that a rank has.
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
	place int
}

// Places of the model that may use one parameter. All layers of one place stand on
// one rank and share an accumulator.
const (
	placeOwn  = iota // the layer that the parameter is named after
	placeHead        // the head that is tied to the embedding
	placeMTP         // multi-token prediction, which embeds too
	numPlaces
)

// localParam is a parameter's memory on a rank.
type localParam struct {
	param *Param
	w     tensorops.Tensor // the weight; with splitsWeight while a layer computes with it
	here  [numPlaces]bool  // which uses are on this rank
	// The gradient of each use that is here. One of them is whole; the others are by
	// rows.
	g     [numPlaces]tensorops.Tensor
	rows  [numPlaces]*rowGrad
	state [2]tensorops.Tensor // AdamW: m and v; SGD: momentum
	// With ZeRO-2, where layers alone complete the gradient (splitsGrad): this rank's part of the sum over the
	// replicas, and from the first layer that adds to the whole one until that is summed its memory, with what
	// fills up the last part. Then the whole one is none.
	splitsGrad       bool
	gradPart, padded tensorops.Tensor
	brief            bool // with Options.BriefGrads: the whole gradient is none between steps
	// With ZeRO-3 this rank's part of the weight, with what fills it up.
	splitsWeight bool
	weightPart   tensorops.Tensor
	// What weight and state were before a speculative update; none before the
	// first of them.
	before      tensorops.Tensor
	stateBefore [2]tensorops.Tensor
	// The weight as its linear layer's products read it, where Options.Pack is set.
	packed [numForms]tensorops.Tensor
	low    tensorops.Tensor // the weight in bfloat16, where Options.Copies is set
	// With it, of the head's weight: low with rows of zeros behind its own, and the gradient with as many, of
	// which low and g are the first rows. See padHead.
	lowPadded, gradPadded tensorops.Tensor
	owner                 bool // reports the norm and is saved: a tied weight's first use
	// A tied weight that is used on other ranks too, and those ranks' gradients of
	// this step as far as they have come.
	shared bool
	others []TiedGrad
}
