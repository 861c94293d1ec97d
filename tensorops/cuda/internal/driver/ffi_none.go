//go:build !linux || !(amd64 || arm64) || nocuda

package driver

import (
	"errors"
	"runtime"
)

// unavailable says why no library can be opened in this build.
const unavailable = "this build of " + runtime.GOOS + "/" + runtime.GOARCH +
	" has no CUDA: CUDA needs linux on amd64 or arm64, and a build without the tag nocuda"

func open(string) (uintptr, error)          { return 0, errors.New(unavailable) }
func find(uintptr, string) (uintptr, error) { return 0, errors.New(unavailable) }
func call(uintptr, ...uintptr) int32        { panic(unavailable) } // nothing was opened
