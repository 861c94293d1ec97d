// Package checkpoint writes checkpoints that survive a crash at any moment, and
// reads them back without trusting them.
//
// A checkpoint is a Hugging Face model directory with a few files more:
//
//	step-00000100/
//	  config.json                    what the model is
//	  model.safetensors              its weights; or, above a size, shards
//	                                 model-00001-of-00002.safetensors, …, and
//	                                 model.safetensors.index.json
//	  tokenizer.json                 where the model has one
//	  optimizer.safetensors          the optimizer's state
//	  trainer.json, config.toml      the trainer's state, the run's config
//	  manifest.json                  size and SHA-256 of every other file
//
// and lies, with its siblings and the pointers `last` and `best`, in the folder
// checkpoints/ of a run's output folder, which a Store looks after.
//
// How a save survives a crash:
//
//  1. All files are written into .tmp-step-…, hashed on the way, and synced.
//  2. The manifest is written last, then the folder is synced: a folder with a
//     manifest is whole.
//  3. The folder is renamed to step-…, and the parent is synced. Where that step
//     exists already, the old one first becomes step-….replaced, a name that
//     readers know too: at no moment is there none. It is removed when the new one
//     has been read back whole.
//  4. A removal begins with a rename to .tmp-…: nothing half removed has a name
//     that a reader looks at.
//
// Other processes may hold some of the tensors and see the folder too (Others). Then Save
// makes the files of their final size, with all that is here; the others write their tensors to
// the places that they are told (WriteOwn), sync them, and say so with a checksum of each; Save
// reads the files back, which gives the manifest's hashes and proves that what the others have
// written is there, and goes on with 2. The files are the same to the byte. An unfinished
// folder's name has the attempt in it, and the others make no file and no folder: one that wakes
// up late finds nothing that it could write to.
//
// What is read is in one of four states when it is not intact (State): damaged,
// which is proven, by a length that differs from the manifest's or by a checksum
// after every byte was read; incomplete; not readable at the moment; or written by a
// newer program. Only a proven damage lets Newest pass a checkpoint over: the others
// may be put right, and then hold the newer work. Nothing that may be of worth is
// removed: SetAside renames it, to step-….damaged or step-….superseded.
//
// Every operation goes through FS, so that the tests can crash after each of them on
// a file system that forgets what was not synced (package crashfs), and let any file
// fail (package faultfs).
//
// What is read is untrusted: names come from an allow-list and are opened beneath
// the folder (internal/host/folder), symbolic links are refused, every length is bounded
// (limits.go) before it is used, and with a manifest every byte is hashed before it
// is handed out. The links `last` and `best` are read, never followed.
//
// A run locks its output folder (LockDir), since one process at a time may write
// into it, opens the Store, goes on from Newest, points `last` to it, sets aside what
// was passed over, and lets it Clean what a crash has left. After that, for each
// checkpoint, in this order: Save, SetLast, maybe SetBest, Prune. So what `last` points
// to is always there, unless something else has removed it. Readers need no lock:
// OpenAt opens what a person means by a path, VerifyAt reports on it.
//
// The package must never know what a tensor or a file's content means: to it a tensor is a name, a
// dtype, a shape and bytes.
package checkpoint
