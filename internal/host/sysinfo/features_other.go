//go:build !amd64 && !arm64

package sysinfo

// Features lists what kernels of this architecture could use: nothing is known.
func Features() []Feature { return nil }
