// Package term shows progress on a terminal: lines that scroll, a progress bar that stays below them, and untrusted
// text without control characters.
//
// The package must not depend on what makes progress; it reads no clock.
package term
