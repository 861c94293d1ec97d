package runlog

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/troupe-ml/troupe/internal/host/sysinfo"
)

// environment says by what, and on what machine, a run is trained: for those who compare runs later.
func environment() string {
	version := "(devel)"
	if info, ok := debug.ReadBuildInfo(); ok {
		version = cmp.Or(info.Main.Version, version)
	}
	return fmt.Sprintf("version %s, %s, %s/%s, %s, %d cores", version, runtime.Version(), runtime.GOOS, runtime.GOARCH,
		cmp.Or(sysinfo.ProcessorName(), "unknown processor"), runtime.NumCPU())
}
