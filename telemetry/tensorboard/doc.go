// Package tensorboard writes TensorBoard event files: a run's metrics as scalars, and its
// configuration and samples as text.
//
// A Writer writes one file. A Recorder follows a run and writes its steps as they finish. Export
// converts a run's folder. Tags have groups, which TensorBoard shows: train/loss, val/loss,
// speed/tokens_per_s, memory/peak_bytes. TensorBoard stores scalars as float32.
//
// Each file begins with the start of a session. It makes TensorBoard drop the data of this step and
// later steps from earlier files of the folder, so that a run which resumed from an older step appears
// once.
//
// The package must not depend on a network or the command line.
package tensorboard
