// Package layertest tells the author of a stages.Layer whether it is right.
//
//	func TestGate(t *testing.T) {
//		layertest.Check(t, NewGate(8), layertest.Options{
//			Inputs: []layertest.Tensor{{Shape: []int{layertest.B, 8}}},
//		})
//	}
//
// Check puts the layer alone into a model: its inputs, the layer, and behind it a loss that is
// the sum of its outputs' numbers, each times a random one. A stages.LossLayer is its own loss.
// It compares the gradients of all inputs and all parameters with central differences of that
// loss, by Richardson's extrapolation, on the oracle tensorops/ref, which computes in float64.
// What a layer computes in Go (Pass.Call) is in float32 there too, for which steps and
// tolerances are larger. Then it runs the layer in every way in which a pipeline may, and the
// bits must be the same each time: several microbatches under way, the weight gradient put off,
// recomputation, another number of threads. It looks at what the layer must leave alone, its
// inputs and its weights among it, and at the memory that is left in use.
//
// Each mistake is an error of the test that begins with the name of the check, and says which
// input or parameter, which element, what the layer has computed and what would be right, and
// what usually causes it:
//
//	gradient      a gradient is not the slope
//	accumulation  WeightGrad sets Pass.Grad, and does not add to it
//	split         InputGrad and, later, WeightGrad give other gradients than both at once
//	in flight     microbatches under way at the same time mix
//	recomputation a second Forward of a microbatch gives other numbers
//	repetition    the same again gives other bits
//	threads       other bits with 2 threads than with 1
//	forward only  it does not run without Pass.Train
//	recording     it looks at numbers while it records, or fails where nothing is computed
//	unchanged     it writes to what it was given
//	memory        tensors are left in use
//	parameters    Params differs from call to call
//	closing       OpenLayer.Close fails
//	forward       it does not run at all: the error says why
package layertest
