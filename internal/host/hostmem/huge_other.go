//go:build unix && !linux

package hostmem

func adviseHuge([]byte) {}
