// Package folder opens the files of one folder and can't be led out of it. A run's
// output folder and a checkpoint may come from elsewhere, unpacked from an archive
// or copied from another machine; what stands in them must not decide where this
// program writes.
//
// Names are relative to the folder, with slashes. Every folder on the way is a
// folder and every file a regular one: a symbolic link is refused wherever it
// points, and so is a named pipe, which would keep its reader waiting. The one path
// that may lead through links is that of the folder itself, which its user chose.
// Links are made and read (Symlink, Readlink), never followed.
//
// FS is the interface; Folder is the operating system's implementation, and tests
// have others that fail or crash where they are told to. The functions that take an
// FS put its operations together: files that are replaced whole, names for what is
// kept aside, reads that don't take a part of a file for all of it.
//
// The package must never know what a file is for.
package folder
