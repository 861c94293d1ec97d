//go:build race

package cluster_test

// raceDetector makes everything some ten times slower.
const raceDetector = true
