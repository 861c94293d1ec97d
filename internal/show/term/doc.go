// Package term renders progress for people: a bar that stays below the lines
// that scroll by, numbers in few characters, and text of any origin made harmless
// for a terminal.
//
// The package must never know what makes progress, nor read a clock.
package term
