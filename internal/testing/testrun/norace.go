//go:build !race

package testrun

// RaceDetector reports whether tests run with the race detector, which makes them about ten times slower.
const RaceDetector = false
