// Package report describes runs from their folders: Compare compares two runs, and Page writes a run as one HTML
// page. Both read the folder of a run or of a checkpoint without its lock, so the run may be active or may have
// crashed. They leave out missing and unreadable files and say so. They write nothing to the folder.
//
// The package must not depend on flags or terminals.
package report
