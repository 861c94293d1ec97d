//go:build !race

package count_test

const raceDetector = false
