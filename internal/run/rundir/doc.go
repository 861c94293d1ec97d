// Package rundir owns a run's output folder: who may write into it, which checkpoint a run resumes
// from, which files are moved aside for that, and what a checkpoint holds beside the tensors.
//
// Open locks the folder, Resume opens the checkpoint, and nothing is changed until Begin. A damaged
// checkpoint that is passed over is renamed, never removed.
//
// A Reader follows the folder of a run of this or another process, for those who show it.
//
// The package must not know how a model is made or trained.
package rundir
