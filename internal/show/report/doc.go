// Package report says what a run left in its folder: Compare how two runs differ, Page a run as one
// HTML page to send around. Both read the folder of a run, or of a checkpoint, as it is at the
// moment, without its lock: the run may go on, or have crashed. What is not there, or can't be read, is
// said and left out; nothing is written.
//
// The package must never know of flags or terminals.
package report
