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
// # Exactness
//
// Which rank holds a layer changes no bit. Weights are drawn by (seed, name,
// index), dropout by (seed, site, step, sequence, position, feature). Weight
// gradients accumulate in the order in which the caller asks for microbatches,
// which is ascending in every schedule. Each use of a tied weight has its own
// accumulator; they are added once, in one order on every rank.
//
// # Tensor parallelism
//
// With Options.Tensor a stage has a slice of its layers (Param.Split, Param.Slice), and records
// the collectives of its group among its operations. All ranks of the group record the same passes in
// the same order. Sizes need not divide but for the heads: of the vocabulary and of the
// feed-forward part some ranks have one more than others. A Saved tensor and a Source's
// parameter say which slice they are. The bits depend on the size of the group, and on nothing
// else.
//
// # Dimensions
//
// B sequences in a microbatch, T positions, N = B·T rows, C hidden channels, H
// heads of D channels, V vocabulary. Activations between chunks are [B, T, C]
// float32; in training, from the first m on, [(1+k)·B, T, C], the hidden states of
// the k depths of multi-token prediction after the model's own. With sequence parallelism T is
// that of a rank.
//
// The package may import tensorops, and of Troupe's internal packages caught, hostmem,
// registry, rng and strictjson. It must not know actors, other stages, schedules, files or the
// network.
package stages
