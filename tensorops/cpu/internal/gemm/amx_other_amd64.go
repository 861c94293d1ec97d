//go:build amd64 && !linux

package gemm

// HasAMX is false: how to ask this system for AMX is not known here.
func HasAMX() bool { return false }
