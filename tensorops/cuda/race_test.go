//go:build race

package cuda

// raceDetector makes everything slower, and pools of memory drop some of what they are given.
const raceDetector = true
