//go:build linux && (amd64 || arm64) && !nocuda

package driver

import "github.com/ebitengine/purego"

// unavailable says why no library can be opened in this build; empty if it can.
const unavailable = ""

// open opens a shared library for the rest of the process's life.
func open(path string) (uintptr, error) {
	return purego.Dlopen(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
}

// find gives the address of a function.
func find(library uintptr, name string) (uintptr, error) { return purego.Dlsym(library, name) }

// call calls a C function that returns an int. Go memory whose address is converted
// to an argument in the call's own expression stays where it is.
//
//go:uintptrescapes
func call(function uintptr, args ...uintptr) int32 {
	r, _, _ := purego.SyscallN(function, args...)
	return int32(r)
}
