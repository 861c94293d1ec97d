//go:build !race

package gorgonia

const raceDetector = false
