//go:build race

package cluster_test

// raceDetector reports a build with the race detector, which is about ten times slower.
const raceDetector = true
