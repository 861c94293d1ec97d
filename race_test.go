//go:build race

package troupe_test

// raceDetector makes everything some ten times slower.
const raceDetector = true
