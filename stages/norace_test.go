//go:build !race

package stages_test

const raceDetector = false
