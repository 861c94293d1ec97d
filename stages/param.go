package stages

import (
	"github.com/troupe-ml/troupe/internal/base/rng"
	"github.com/troupe-ml/troupe/tensorops"
)

// Init says how a parameter is initialized.
type Init struct {
	Std   float64 // standard deviation of a normal distribution
	Const float64 // its mean, which is the value if Std is 0
	// Uniform, if it is not 0, means a uniform distribution in ±Uniform instead.
	Uniform float64
}

// Param describes one parameter of a model. Its name and index are the same on every rank.
type Param struct {
	Name  string // as the family's checkpoints name it
	Index int    // index in Model.Params
	Shape []int  // shape of a rank's slice
	Decay bool   // weight decay applies (matrices, not norms and biases)
	Init  Init
	// Frozen means that the parameter is not trained; see Model.Freeze.
	Frozen bool
	// Adapter means that the parameter belongs to an Adapter and not to the base. Such parameters come after those of the base.
	Adapter bool
	// Constant means that the parameter is one number that is never trained and that operations are recorded with.
	Constant bool
	// Fixed means that the parameter is never trained, whatever Model.Freeze says.
	Fixed bool
	// Float32 means that files have the parameter in float32, whatever the type of the others.
	Float32 bool
	// LoadRate, if it is not 0, says that the parameter is a router's bias. Its gradient counts the tokens of each expert, and an update
	// moves it by LoadRate toward equal loads: see tensorops.List.RouteBias. It has no optimizer state, no average and no part in the
	// gradient's norm, and every replica updates all of it.
	LoadRate float64
	// Hidden describes the hidden matrices in the parameter; nil: it has none.
	Hidden *Matrices
	// Stored says in which tensor of a checkpoint the parameter is, if that holds several.
	Stored Stored
	// Parts are the names of a checkpoint's tensors if the parameter is in several: each has an equal part, one
	// after another. The first dimension of the parameter counts them.
	Parts []string
	// Other is the tensor that files have instead of these if they were written by another program, or another release of it; nil:
	// there is none.
	Other *StoredPart

	// Whole is the shape of the whole parameter, Split the rule by which tensor parallelism cuts
	// it, Slice the rank's part. Without tensor parallelism Shape is Whole.
	Whole []int
	Split Split
	Slice Slice

	sum gradSum
	// experts: the matrices, biases or adapters of experts, of which a rank of an expert group has a part. Its Slice says which.
	experts bool
	more    bool            // for a Source: the next range of the same part will be read
	places  [numPlaces]bool // places that use it
}

// Len returns the number of elements that a rank has.
func (p *Param) Len() int {
	n := 1
	for _, d := range p.Shape {
		n *= d
	}
	return n
}

// Experts reports whether the parameter has something of each expert, which its first dimension counts: a matrix, a bias, or a part of
// an adapter.
func (p *Param) Experts() bool { return p.experts }

// use is one place where a layer uses a parameter. Each use accumulates its own gradient.
type use struct {
	param *Param
	place int
}

// The places of the model that may use one parameter. All layers of one place are on one rank and
// share an accumulator.
const (
	placeOwn  = iota // the layer that the parameter is named after
	placeHead        // the head that is tied to the embedding
	placeMTP         // multi-token prediction, which also embeds
	numPlaces
)

// localParam is a parameter's memory on a rank.
type localParam struct {
	param *Param
	// constant is the value of a Param.Constant.
	constant float64
	w        tensorops.Tensor // the weight; with splitsWeight only while a layer computes with it
	here     [numPlaces]bool  // which uses are on this rank
	// The gradient of each use on this rank. One of them is whole; the others are row gradients.
	g       [numPlaces]tensorops.Tensor
	rows    [numPlaces]*rowGrad
	own     Optimizer           // its settings
	lrScale float64             // factor of the learning rate
	state   [2]tensorops.Tensor // AdamW: m and v; SGD and Muon: momentum
	ema     tensorops.Tensor    // with Optimizer.EMA
	// With Optimizer.State: the scales of Uint8, the keys of the random bits, and the index of the state's first element in the whole
	// parameter.
	scales     [2]tensorops.Tensor
	stateKeys  [2]rng.Key
	stateFirst uint64
	// With ZeRO-2, if only layers complete the gradient (splitsGrad): this rank's part of the sum
	// over the replicas, and the memory of the whole gradient, including padding of the last part,
	// from the first layer that adds to it until it is summed. Afterwards the whole gradient is
	// invalid. Of a parameter that an expert group divides, bySource exists as long as the whole gradient.
	splitsGrad       bool
	gradPart, padded tensorops.Tensor
	brief            bool // with Options.BriefGrads: the whole gradient is invalid between steps
	// Of a parameter that an expert group divides: the gradients of the tokens of each rank of the group. The first is g.
	bySource []tensorops.Tensor
	// With ZeRO-3: this rank's part of the weight, with padding.
	splitsWeight bool
	weightPart   tensorops.Tensor
	weightUsers  int              // layers of passes that need the whole weight now
	arriving     int              // number of the collective that gathers it (tensorops.List.Begin); 0: it has arrived
	paddedWeight tensorops.Tensor // the whole weight while it arrives, if it does so with gaps: see partition.gaps
	// The memory of a quantized weight; nil: it is not quantized.
	blocks *blocks
	// The weight and the state before a speculative update; invalid before the first of them.
	before      tensorops.Tensor
	stateBefore [2]tensorops.Tensor
	emaBefore   tensorops.Tensor
	scaleBefore [2]tensorops.Tensor
	// The weight in the form that its products read, if Options.Pack is set.
	packed [numForms]tensorops.Tensor
	low    tensorops.Tensor // the weight in bfloat16, if Options.Copies is set
	// For the head's weight with Options.Copies: low with padding rows of zeros, and the gradient
	// with as many rows. low and g are their first rows. See padHead.
	lowPadded, gradPadded tensorops.Tensor
	owner                 bool // a tied weight's first use, which reports the norm and is saved
	// A tied weight that is also used on other ranks, and the gradients of those ranks that have
	// arrived in this step.
	shared bool
	others []TiedGrad
}
