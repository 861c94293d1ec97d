// Package stages computes one pipeline stage: the layers and the model families; a chunk's forward,
// input gradient and weight gradient; the activations kept between them; the loss; and the
// optimizer.
//
// A [Model] lists its layers in order: one E (embedding), Layers times t (decoder layer), MTPLayers
// times m (multi-token prediction), one L (final norm, head and loss). These are the symbols of the
// layout language. A [Stage] holds the chunks of one rank on one device stream. Each chunk is a
// range of consecutive layers with their parameters, gradients and optimizer state. A stage only
// records operations in a list; it never waits and never computes:
//
//	out := stage.Forward(list, chunk, microbatch, in)
//	dx := stage.InputGrad(list, chunk, mb, dy)   // a B is InputGrad, then
//	stage.WeightGrad(list, chunk, mb)            // WeightGrad
//
// [Act] records an action of a table with these methods, for runs, forecasts, proofs and
// measurements. passes.go has the pass of a single rank, from start to end. Hooks (hooks.go) add
// what ranks do together in a pass. edges.go completes inputs and converts outputs to the type of
// the edges.
//
// # Exactness
//
// The rank that holds a layer does not change any bit. Weights are drawn from (seed, name, index),
// dropout from (seed, site, step, sequence, position, feature). Weight gradients accumulate in the
// order in which the caller records microbatches, which is ascending in every schedule. Each use of
// a tied weight has its own accumulator; they are added once, in the same order on every rank.
//
// # Families and graphs
//
// Each family of language models is one file, family_NAME.go; FAMILIES.md explains how to add one.
// Other models are a [Graph] of layers (graph.go). A unit stands between the chunk and each layer
// of a Graph (unit.go). It hands the layer its tensors, checks the results, and names the layer in
// every error, also after a panic. A layer does not own its input tensors. A buffer with several
// holders is in a box that counts them; the last holder frees it. A value that several chunks take
// travels from one of them to the next. Its gradient comes back the same way, and each chunk adds
// its own part (wiring.go). So the order of the sum depends on the model only, not on where it is
// cut. Package layertest runs a layer alone through all of this.
//
// # bfloat16
//
// With Options.BF16 layers compute and keep bfloat16. An edge carries a tensor in the type that it
// has inside a chunk, so the place of a cut does not change any bit.
//
// # Tensor parallelism
//
// With Options.Tensor a stage has a slice of its layers (tensorparallel.go) and records its group's
// collectives among its operations (tensorpass.go). Param.Split says how a parameter is cut: a
// linear layer by its outputs and the next one by its inputs, attention by whole heads, each expert
// by its width (experttensor.go), embedding and head by rows of the vocabulary. A rank without a
// token's row adds zeros. For the loss, ranks exchange two numbers for each row. With Sequence each rank has some positions of the residual
// stream. They are gathered before the products, and after the products their sums are scattered. A
// backward records its weight gradients while the group sums the input gradient (List.Begin,
// List.Await).
//
// All ranks of the group record the same passes in the same order. The number of heads must divide
// by the size of the group; other sizes need not: some ranks then have one more row of the
// vocabulary and of the feed-forward part. A Saved tensor and a Source's parameter say which slice
// they are. Dropout and initial weights are those of the whole model. The bits depend on the size
// of the group, and on nothing else.
//
// # Context parallelism
//
// With Options.Context a stage has some positions of each sequence (contextparallel.go). In
// attention, keys and values travel around the group while each rank computes with those that it
// has (ring.go).
//
// # Data parallelism and ZeRO
//
// With Options.Data a stage computes some of a step's microbatches (dataparallel.go). Gradients lie
// in one contiguous piece of memory, in the order in which a backward completes them
// (flatgrads.go). In the backward of a chunk's last microbatch, the replicas add a range of
// gradients as soon as its layers are done, while earlier layers still compute. Gradients to which
// other ranks or rows contribute, such as those of tied weights, are added at the end of the step.
//
// DataParallel.Zero shares more: 1 the optimizer state (zero.go), 2 also the gradients
// (zerograds.go), 3 also the weights (zeroweights.go). A rank's part of a parameter is the range of
// elements whose norm it computes anyway (partition.go), so Zero does not change any bit. With 3 each
// pass needs all replicas, so all of them record the same passes, also in validation. Of experts that
// ranks share (Options.Experts), only the ranks with the same ones share these things (expertzero.go).
//
// # Dimensions
//
// B is the number of sequences in a microbatch, T the positions, N = B·T the rows, C the hidden
// channels, H the heads, D the channels of a head, V the vocabulary. Activations between chunks are
// [B, T, C] float32. In training, from the first m on, they are [(1+k)·B, T, C]: the hidden states
// of the model, followed by those of the k depths of multi-token prediction. With sequence
// parallelism T counts the positions of one rank. Where layers pass more on than the residual
// stream, C is larger: see [Model.EdgeWidth] and passing.go.
//
// The package must not know actors, other stages, tables, files or the network.
package stages
