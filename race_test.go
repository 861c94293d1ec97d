//go:build race

package troupe

// RaceDetector makes everything some ten times slower.
const RaceDetector = true
