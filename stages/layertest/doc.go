// Package layertest checks whether a stages.Layer is correct.
//
//	func TestGate(t *testing.T) {
//		layertest.Check(t, NewGate(8), layertest.Options{
//			Inputs: []layertest.Tensor{{Shape: []int{layertest.B, 8}}},
//		})
//	}
//
// [Check] builds a model around the layer: its inputs, the layer, and a loss that is the sum of all
// numbers of its outputs, each multiplied by a random number. A stages.LossLayer is its own loss.
// Check compares the gradients of all inputs and parameters with central differences of that loss
// (with Richardson's extrapolation), on the oracle tensorops/ref, which computes in float64. Code
// of the layer in Go (Pass.Call) computes in float32 there, too; then steps and tolerances are
// larger.
//
// Afterwards Check runs the layer in every way that a pipeline may, and the bits must be the same
// each time: with several microbatches in flight, with a delayed weight gradient, with
// recomputation, and with another number of threads. It checks that the layer does not change its
// inputs and weights, and that it leaves no memory in use.
//
// Each fault is an error of the test. The error begins with the name of the check. It says which
// input or parameter and which element is wrong, what the layer computed, what would be correct,
// and the usual cause. The checks are:
//
//	gradient      a gradient differs from the slope of the loss
//	accumulation  WeightGrad overwrites Pass.Grad instead of adding to it
//	split         InputGrad and a later WeightGrad give other gradients than both at once
//	in flight     microbatches in flight at the same time get mixed up
//	recomputation a second Forward of a microbatch gives other numbers
//	repetition    the same run gives other bits
//	threads       2 threads give other bits than 1
//	forward only  the layer fails without Pass.Train
//	recording     it reads numbers while it records, or fails if nothing is computed
//	unchanged     it writes to its inputs, its weights or other tensors that it does not own
//	memory        it leaves tensors in use
//	parameters    Params differs between calls
//	closing       OpenLayer.Close fails
//	forward       the layer does not run at all; the error says why
package layertest
