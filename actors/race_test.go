//go:build race

package actors_test

// raceDetector makes everything some ten times slower.
const raceDetector = true
