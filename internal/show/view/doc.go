// Package view draws a run as text that fills a part of a terminal: its stages and what each of
// them does, a strip of what they did lately, the curve of the loss, and its figures. It is told
// what happens and draws it when asked. The package must never know of terminals, keys or clocks.
package view
