// Package view draws a run as text for a part of a terminal: the activity of its stages with a timeline of their last
// actions, the curve of the loss, and its metrics. The caller passes events and status to a View and calls Draw. The
// package must not depend on terminals, keys or clocks.
package view
