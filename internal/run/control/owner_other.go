//go:build !unix

package control

import "io/fs"

// owner does not know the user.
func owner(fs.FileInfo) (uid int, known bool) { return 0, false }
