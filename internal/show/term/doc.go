// Package term renders progress for people: a bar that stays below the lines
// that scroll by, numbers in few characters, and text of any origin made harmless
// for a terminal.
//
// It imports the standard library and golang.org/x/term. It must never know what
// makes progress, nor read a clock.
package term
