//go:build linux && (amd64 || arm64) && !nocuda

package cuda

// StandIn builds the library that stands in for a GPU.
var StandIn = build

// RaceDetector says that tests run under it.
const RaceDetector = raceDetector
