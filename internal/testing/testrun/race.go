//go:build race

package testrun

// RaceDetector says that tests run under it: everything is some ten times slower.
const RaceDetector = true
