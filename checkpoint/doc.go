// Package checkpoint writes checkpoints that survive a crash at any moment, and reads them back
// without trusting them.
//
// A checkpoint is a Hugging Face model folder with additional files:
//
//	step-00000100/
//	  config.json                    describes the model
//	  model.safetensors              its weights; or, above a size, shards
//	                                 model-00001-of-00002.safetensors, …, and
//	                                 model.safetensors.index.json
//	                                 or, if only a part of them is stored, trained.safetensors
//	  tokenizer.json                 if the model has one
//	  optimizer.safetensors          the optimizer state
//	  trainer.json, config.toml      the trainer's state, the run's config
//	  manifest.json                  size and SHA-256 of every other file
//
// It lies in the folder checkpoints/ of a run's output folder, together with the other checkpoints
// and the pointers `last` and `best`. A [Store] manages this folder.
//
// A validation that is the best so far may also leave a folder best-00000100, to which `best` points
// ([Store.SaveBest]). It is a checkpoint without the optimizer state: programs can use the model, but no
// run resumes from it. Beside the newest one, a run keeps the one that its newest checkpoint knows as the
// best. If the run then resumes from that checkpoint, `best` can point to it again ([Store.PointBest]).
//
// A save survives a crash as follows:
//
//  1. All files are written into .tmp-step-…, hashed on the way, and synced.
//  2. The manifest is written last, then the folder is synced. So a folder with a manifest
//     is whole.
//  3. The folder is renamed to step-…, and the parent is synced. If a checkpoint of that
//     step exists already, it is first renamed to step-….replaced, a name that readers
//     know, too. So at every moment there is a checkpoint. The old one is removed after the
//     new one has been read back whole.
//  4. A removal starts with a rename to .tmp-…, so readers never see a half-removed
//     checkpoint.
//
// Other processes may hold some of the tensors and see the folder, too ([Others]). Then Save
// creates the files in their final size, with all tensors of its own process. The other processes
// write their tensors to the given places ([WriteOwn]), sync them, and report a checksum of each.
// Save reads the files back to get the hashes for the manifest and to prove that the other
// processes' data are there. Then it continues with step 2. The files are byte-identical to those
// of a single process. The name of an unfinished folder contains the attempt, and the other
// processes create no files or folders. So a late process of an older attempt finds nothing to
// which it could write.
//
// A checkpoint that is not intact is in one of four states ([State]): damaged; incomplete;
// unreadable at the moment; or written by a newer program. Damage is proven by a length that
// differs from the manifest's, or by a checksum after every byte was read. [Store.Newest] skips a
// checkpoint only if it is proven to be damaged, since one in another state may be repaired and is
// newer. Troupe deletes nothing that may be of value: [Store.SetAside] renames it to step-….damaged
// or step-….superseded.
//
// Every operation goes through [FS]. So tests can crash after each operation on a file system that
// loses what was not synced (package crashfs), and can make any file fail (package faultfs).
//
// Everything that is read is untrusted. Names come from an allow-list and are opened beneath the
// folder (internal/host/folder). Symbolic links are refused. Every length is checked (limits.go)
// before it is used. With a manifest, every byte is hashed before it is returned. The links `last`
// and `best` are read but never followed.
//
// Only one process at a time may write into an output folder, so a run locks it ([LockDir]). Then
// the run opens the Store, resumes from Newest, points `last` to it, renames the skipped
// checkpoints, and lets Clean remove what a crash has left. Afterwards it calls, for each
// checkpoint and in this order, Save, SetLast, possibly SetBest, Prune and PruneBest. So the checkpoint
// to which `last` points always exists, unless something else has removed it. Readers need no lock:
// [OpenAt] opens the checkpoint that a path refers to, and [VerifyAt] reports on it.
//
// The package must never know what a tensor or a file's content means: a tensor is a name, a dtype,
// a shape and bytes.
package checkpoint
