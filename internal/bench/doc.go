// Package bench measures what training spends its time on: matrix products, the
// operations of a decoder layer, and whole training steps. Each is measured
// through the interface that training uses, a stream's lists or a run, so that
// the figures are those of training.
//
// The package must not know flags, the terminal, or what other programs can do.
package bench
