//go:build race

package stages_test

// raceDetector makes everything some ten times slower.
const raceDetector = true
