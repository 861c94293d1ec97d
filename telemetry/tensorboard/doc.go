// Package tensorboard writes event files that TensorBoard reads: a run's figures as scalars, and
// its configuration and samples as texts.
//
// A Writer has one file. A Recorder follows a run and writes its steps as they end; Export makes
// a file of a run's folder. Tags are grouped as TensorBoard shows them: train/loss,
// val/loss, speed/tokens_per_s, memory/peak_bytes. TensorBoard keeps scalars as float32.
//
// Each file begins with the start of a session, which makes TensorBoard forget what earlier files
// of the folder have of this step and later ones: a run that goes on from an older step is shown
// once.
//
// The package must never know a network or the command line.
package tensorboard
