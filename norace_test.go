//go:build !race

package troupe

const RaceDetector = false
