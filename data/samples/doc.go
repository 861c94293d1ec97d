// Package samples is data that is no text: samples of named fields, each a tensor of its
// own, such as an image and its class.
//
// A Dataset has Len samples, which At reads in any order. Open reads one from files of CSV,
// IDX (the format of MNIST) or JSON lines; OpenRun makes all that a run needs of it, training
// and validation data, also of a format that the program has registered (Register,
// RegisterStream). Split and Subset take parts of one. NewSource gives a run its samples: each
// once an epoch, in an order that follows from the seed and the sample's number in the run
// alone, so that a run that goes on, or one under another layout, reads the same. At reads one
// sample and checks it, Batch stacks some for a microbatch, and Identity tells whether data is
// what it was before.
//
// A Stream is data without a known length, read one sample behind the other; StreamSource
// gives it to a run.
//
// The package must never know a configuration (its errors name the keys of one, and no more), a
// model, or the actors that it feeds.
package samples
