// Package standin builds a stand-in for CUDA's driver, NVRTC and cuBLASLt with the kernels
// compiled for the host: what tests run the device against on a machine without a
// GPU. The C++ is in folder lib; emulate.h is what the kernels see of it.
//
// It has the devices that DevicesVariable says, each with a memory of its own.
//
// For counting (package count) it can be hollow, and then has room for models of any size; it can log what streams
// are given, be slower than the host, and see the loads and stores of kernels.
//
// It is for tests alone and must not be imported by anything else.
package standin

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/cpu"
)

// ErrCompiler: there is no C++ compiler on this machine.
var ErrCompiler = errors.New("no C++ compiler (g++, clang++ or c++) found")

// What the environment says of the stand-in.
const (
	DevicesVariable = "TROUPE_STANDIN_DEVICES" // how many it has, at most 16; one without it
	PeersVariable   = "TROUPE_STANDIN_PEERS"   // 0: none has access to another's memory
)

// options of the compiler. Products and sums must not be contracted: kernels say
// themselves where they round once.
var options = []string{"-std=c++17", "-O2", "-fPIC", "-ffp-contract=off", "-fno-strict-aliasing"}

// ofThis are those for this machine's processor: with them a fused multiply-add is no call. They change no bit.
var ofThis = func() []string {
	if cpu.X86.HasAVX2 && cpu.X86.HasFMA {
		return []string{"-mavx2", "-mfma"}
	}
	return nil
}()

// files are the stand-in's sources. They are part of this package, so that `go test`
// knows when one has changed.
//
//go:embed emulate.h lib
var files embed.FS

// Build compiles the stand-in with all kernels, *.cu, and returns the shared library's
// path in the folder out. What has been compiled before, on this machine and of the same sources, is
// taken from the user's cache.
func Build(ctx context.Context, out string, kernels fs.FS) (string, error) {
	return build(ctx, out, kernels, nil, nil)
}

// BuildWatching is Build of a stand-in that sees each load and store of a kernel: see
// Library.Touched. It is slower. A process can have one of the two, and none that watches
// under the race detector, whose calls it uses.
func BuildWatching(ctx context.Context, out string, kernels fs.FS) (string, error) {
	return build(ctx, out, kernels, []string{"-DWATCHED"}, []string{"-fsanitize=thread"})
}

// build compiles with further options for the stand-in's own units, and for kernels.
func build(ctx context.Context, out string, kernels fs.FS, own, ofKernels []string) (string, error) {
	compiler, err := Compiler()
	if err != nil {
		return "", err
	}
	key, err := keyOf(ctx, compiler, slices.Concat(options, ofThis, own, ofKernels), files, kernels)
	if err != nil {
		return "", err
	}
	library := filepath.Join(out, "libtroupe-standin.so")
	if take(key, library) {
		return library, nil
	}
	source := filepath.Join(out, "standin")
	if err := os.CopyFS(source, files); err != nil {
		return "", err
	}
	folder := filepath.Join(out, "kernels")
	if err := os.CopyFS(folder, kernels); err != nil {
		return "", err
	}
	units, err := filepath.Glob(filepath.Join(source, "lib", "*.cpp"))
	if err != nil {
		return "", err
	}
	cus, err := filepath.Glob(filepath.Join(folder, "*.cu"))
	if err != nil {
		return "", err
	}
	for _, cu := range cus {
		unit, err := wrap(cu)
		if err != nil {
			return "", err
		}
		units = append(units, unit)
	}
	objects := make([]string, len(units))
	failures := make([]error, len(units))
	turns := make(chan struct{}, runtime.NumCPU())
	var ended sync.WaitGroup
	for i, unit := range units {
		objects[i] = filepath.Join(out, filepath.Base(unit)+".o")
		ended.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			args := slices.Concat([]string{"-c", unit, "-o", objects[i]}, options, ofThis)
			if strings.HasSuffix(unit, ".cu.cc") {
				args = append(args, "-DTROUPE_EMULATED", "-include", filepath.Join(source, "emulate.h"))
				args = append(args, ofKernels...)
			} else {
				args = append(args, own...)
			}
			failures[i] = run(ctx, compiler, args)
		})
	}
	ended.Wait()
	if err := errors.Join(failures...); err != nil {
		return "", err
	}
	if err := run(ctx, compiler, append([]string{"-shared", "-pthread", "-o", library}, objects...)); err != nil {
		return "", err
	}
	keep(key, library)
	return library, nil
}

// Compiler finds the C++ compiler.
func Compiler() (string, error) {
	for _, name := range []string{"g++", "clang++", "c++"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", ErrCompiler
}

// wrap writes a unit that has a kernel file in a namespace of its own: on a GPU each
// file is a module, and two may use the same name for different things.
func wrap(cu string) (string, error) {
	unit := cu + ".cc"
	return unit, os.WriteFile(unit, fmt.Appendf(nil, "namespace {\n#include %q\n}\n", filepath.Base(cu)), 0o600)
}

func run(ctx context.Context, compiler string, args []string) error {
	if text, err := exec.CommandContext(ctx, compiler, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w\n%s", compiler, strings.Join(args, " "), err, text)
	}
	return nil
}
