//go:build !(linux || darwin || freebsd)

package transport

// openFiles returns how many files this process may have open. On these systems it assumes enough for all connections.
func openFiles() uint64 { return LimitConnections + filesKept }
