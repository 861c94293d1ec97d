//go:build !(linux || darwin || freebsd)

package checkpoint

// On the systems of this file a full disk is an error like any other.

func isNoSpace(error) bool { return false }
