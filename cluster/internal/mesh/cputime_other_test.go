//go:build !unix

package mesh_test

import "time"

// cpuTime is unknown on this system.
func cpuTime() time.Duration { return 0 }
