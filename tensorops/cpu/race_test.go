//go:build race

package cpu_test

// raceDetector makes everything some ten times slower.
const raceDetector = true
