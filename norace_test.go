//go:build !race

package troupe_test

const raceDetector = false
