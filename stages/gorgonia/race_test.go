//go:build race

package gorgonia

// raceDetector makes everything some ten times slower.
const raceDetector = true
