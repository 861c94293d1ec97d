//go:build !(linux || darwin || freebsd)

package transport

// openFiles is how many files this process may have open; on the systems of this file it may have as many as there are connections.
func openFiles() uint64 { return LimitConnections + filesKept }
