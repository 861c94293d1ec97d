//go:build !(linux || darwin)

package life

func limitFiles() error { return nil }
