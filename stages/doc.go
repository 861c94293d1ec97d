// Package stages is what a pipeline stage computes: layers and model families, a
// chunk's forward, input gradient and weight gradient, the activations saved in
// between, the loss, and the optimizer.
//
// A Model lists its layers in order: one E (embedding), Layers times t (decoder
// layer), MTPLayers times m (multi-token prediction), one L (final norm, head and
// loss), the symbols of the layout language.
// A Stage holds one rank's chunks, each a run of layers, with their parameters,
// gradients and optimizer state on one device stream. It records operations; it
// never waits and never computes itself:
//
//	out := stage.Forward(list, chunk, microbatch, in)
//	dx := stage.InputGrad(list, chunk, mb, dy)   // B is InputGrad then
//	stage.WeightGrad(list, chunk, mb)            // WeightGrad
//
// Act records an action of a table by these, for everybody: a run, forecasts, proofs and measurements. passes.go is the
// pass of a rank alone, from top to bottom; what ranks do together in it is in hooks (hooks.go), edges.go makes inputs
// whole and gives outputs the type of the edges.
//
// # Exactness
//
// Which rank holds a layer changes no bit. Weights are drawn by (seed, name,
// index), dropout by (seed, site, step, sequence, position, feature). Weight
// gradients accumulate in the order in which the caller asks for microbatches,
// which is ascending in every schedule. Each use of a tied weight has its own
// accumulator; they are added once, in one order on every rank.
//
// # Families and graphs
//
// Each family of language models is a file, family_NAME.go; FAMILIES.md tells how to add one. Other
// models put a Graph of layers together (graph.go). A unit stands between the chunk and each layer of a
// Graph (unit.go): it hands the layer its tensors, checks the results, and names the layer in every error,
// also after a panic. A layer owns no tensor that it is given. A buffer that several hold is in a box
// that counts its holders; the last one frees it. A value that several chunks take travels from one of
// them to the next, and its gradient comes back the same way, each chunk adding its own (wiring.go). So the
// order of the sum is the model's, wherever it is cut. stages/layertest runs a layer alone through all of this.
//
// # bfloat16
//
// With Options.BF16 layers make and keep bfloat16. An edge carries a tensor in the type that it has
// inside a chunk, so where the model is cut changes no bit.
//
// # Tensor parallelism
//
// With Options.Tensor a stage has a slice of its layers (tensorparallel.go), and records the collectives of
// its group among its operations (tensorpass.go). Param.Split says how a parameter is cut: a linear layer
// by its outputs and the next one by its inputs, attention by whole heads, embedding and head by rows of the
// vocabulary. A rank without a token's row adds zeros. For the loss, ranks exchange two numbers
// a row. With Sequence each rank has some positions of the residual stream: they are gathered before
// the products and summed by parts after them. A backward records its weight gradients while the group
// sums the input gradient (List.Begin, List.Await).
//
// All ranks of the group record the same passes in the same order. Sizes other than the heads need not
// divide: some ranks have one row more of the vocabulary and of the feed-forward part. A Saved tensor and a
// Source's parameter say which slice they are. Dropout and initial weights are those of the whole
// model. The bits depend on the size of the group, and on nothing else.
//
// # Context parallelism
//
// With Options.Context a stage has some positions of each sequence (contextparallel.go). In attention,
// keys and values travel around the group while each rank computes with those that it has (ring.go).
//
// # Data parallelism and ZeRO
//
// With Options.Data a stage computes some of a step's microbatches (dataparallel.go). Gradients lie in one
// piece of memory, in the order in which a backward completes them (flatgrads.go). In the backward of a chunk's last
// microbatch the replicas add a run of gradients as soon as its layers are done, while earlier layers
// compute. Gradients that other ranks or rows add to, such as those of tied weights, are added at the step's end.
//
// DataParallel.Zero shares more. 1 shares the optimizer's state (zero.go), 2 the gradients too
// (zerograds.go), 3 the weights too (zeroweights.go). A rank's part of a parameter is the run of elements whose
// norm it takes in any case, so no bit depends on Zero. With 3 each pass is a meeting of all replicas, so all
// record the same passes, in validation too.
//
// # Dimensions
//
// B sequences in a microbatch, T positions, N = B·T rows, C hidden channels, H
// heads of D channels, V vocabulary. Activations between chunks are [B, T, C]
// float32; in training, from the first m on, [(1+k)·B, T, C], the hidden states of
// the k depths of multi-token prediction after the model's own. With sequence parallelism T is
// that of a rank.
//
// The package must not know actors, other stages, tables, files or the network.
package stages
