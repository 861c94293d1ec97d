//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"slices"

	"github.com/troupe-ml/troupe/internal/optest"
)

// StandIn builds the library that stands in for a GPU.
var StandIn = build

// RaceDetector says that tests run under it.
const RaceDetector = raceDetector

// Refused reports whether a case is of what this device does not know.
func Refused(c optest.Case) bool { return slices.Contains(refused, c.Kind) || ofRowFactors(c) }
