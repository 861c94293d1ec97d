// Package samples handles data that is not text: samples of named fields, each a tensor, such as an
// image and its class.
//
// A [Dataset] has Len samples, which At reads in any order. [Open] reads a dataset from files of
// CSV, IDX (the format of MNIST) or JSON lines. [OpenRun] makes all data of a run, for training and
// validation, including data of a format that the program has registered ([Register],
// [RegisterStream]). [Split] and [Subset] take parts of a dataset. [NewSource] gives a run its
// samples, each once an epoch. Their order depends only on the seed and the sample's number in the
// run. So a resumed run, or one with another layout, reads the same samples. [At] reads one sample
// and checks it, [Batch] stacks samples for a microbatch, and [Identity] tells whether data is
// unchanged.
//
// A [Stream] is data without a known length, read one sample after the other; [StreamSource] gives
// it to a run.
//
// The package must never know a config (its errors name config keys, and no more), a model, or the
// actors that it feeds.
package samples
