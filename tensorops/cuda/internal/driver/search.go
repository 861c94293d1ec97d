package driver

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Libraries says where the libraries are. An empty path means the usual places.
type Libraries struct {
	Driver string // libcuda.so.1, which comes with the GPU's driver
	NVRTC  string // libnvrtc.so, which comes with the CUDA toolkit or a Python package
	BLAS   string // libcublasLt.so, which comes as NVRTC does; or None
}

// None, as the path of a library, disables the library.
const None = "none"

// driverCandidates are what the driver's library is called. The loader looks for names
// without a folder in LD_LIBRARY_PATH and in the system's folders.
func (l Libraries) driverCandidates() []string {
	if l.Driver != "" {
		return []string{l.Driver}
	}
	return []string{"libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1"}
}

// release is a major version of a library's, with the file that it is in.
type release struct {
	major int
	file  string
}

// nvrtcMajors are the major versions of NVRTC that are looked for; version 11 is named
// after 11.2 in all of its releases since.
var nvrtcMajors = []release{{13, "libnvrtc.so.13"}, {12, "libnvrtc.so.12"}, {11, "libnvrtc.so.11.2"}}

// nvrtcCandidates are the places where NVRTC may be.
func (l Libraries) nvrtcCandidates(driverMajor int) []string {
	if l.NVRTC != "" {
		return []string{l.NVRTC}
	}
	return candidates(nvrtcMajors, "libnvrtc.so", driverMajor)
}

// blasMajors are the major versions of cuBLASLt that are looked for.
var blasMajors = []release{{13, "libcublasLt.so.13"}, {12, "libcublasLt.so.12"}, {11, "libcublasLt.so.11"}}

// blasCandidates are the places where cuBLASLt may be.
func (l Libraries) blasCandidates(driverMajor int) []string {
	if l.BLAS != "" {
		return []string{l.BLAS}
	}
	return candidates(blasMajors, "libcublasLt.so", driverMajor)
}

// candidates are the places where a library may be, of which plain is the name without a
// version. What is no newer than the driver comes first: a driver need not know what a
// newer compiler writes, nor what a newer library asks of it.
func candidates(majors []release, plain string, driverMajor int) []string {
	majors = slices.Clone(majors)
	slices.SortStableFunc(majors, func(a, b release) int {
		return boolInt(a.major > driverMajor) - boolInt(b.major > driverMajor)
	})
	var names, all []string
	for _, m := range majors {
		names = append(names, m.file)
	}
	folders := toolkitFolders()
	for _, name := range append(names, plain) {
		all = append(all, name)
		for _, folder := range folders {
			if path := filepath.Join(folder, name); exists(path) {
				all = append(all, path)
			}
		}
	}
	return all
}

// nowhere says which folders candidates looked through, for the error, and which of
// Python's packages has the library.
func nowhere(pythonPackage string) string {
	return fmt.Sprintf("\nIt is not in $CUDA_HOME, /usr/local/cuda* or the Python packages in %s either (%d of these folders exist). "+
		"It comes with the CUDA toolkit, and with `pip install %s`", strings.Join(pythonPrefixes(), ", "), len(toolkitFolders()), pythonPackage)
}

// toolkitFolders are the existing folders that hold the toolkit's libraries, beside
// those that the loader knows.
func toolkitFolders() []string {
	var patterns []string
	for _, variable := range []string{"CUDA_HOME", "CUDA_PATH"} {
		if home := os.Getenv(variable); home != "" {
			patterns = append(patterns, filepath.Join(home, "lib64"), filepath.Join(home, "lib"))
		}
	}
	patterns = append(patterns, "/usr/local/cuda*/lib64", "/usr/local/cuda*/targets/*/lib")
	for _, prefix := range pythonPrefixes() {
		if !slices.Contains(systemPrefixes, prefix) { // Conda puts the toolkit there; the loader knows the system's
			patterns = append(patterns, filepath.Join(prefix, "lib"), filepath.Join(prefix, "targets", "*", "lib"))
		}
		for _, lib := range []string{"lib", "lib64"} {
			for _, packages := range []string{"site-packages", "dist-packages"} {
				patterns = append(patterns, filepath.Join(prefix, lib, "python3*", packages, "nvidia", "*", "lib"))
			}
		}
	}
	var folders []string
	for _, p := range patterns {
		matches, err := filepath.Glob(p)
		if err != nil { // a prefix with odd characters: nothing is there
			continue
		}
		folders = append(folders, matches...)
	}
	return folders
}

// systemPrefixes are where the system's Python is, and condaPrefix where images with Conda
// have theirs, which nothing need name. Tests replace them.
var (
	systemPrefixes = []string{"/usr", "/usr/local"}
	condaPrefix    = "/opt/conda"
)

// pythonPrefixes are the folders that a Python may be installed in, each once: the
// environment that is active, the one whose python3 is found first, and the usual ones. An
// environment need not be active: it is enough that its python3 was put in PATH.
func pythonPrefixes() []string {
	var all []string
	add := func(prefix string) {
		if prefix != "" && !slices.Contains(all, prefix) {
			all = append(all, prefix)
		}
	}
	for _, variable := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		add(os.Getenv(variable))
	}
	for _, name := range []string{"python3", "python"} {
		path, err := exec.LookPath(name)
		if err != nil {
			continue
		}
		// The python3 of an environment is a link to the one that it was made with, whose packages
		// it may see too.
		add(prefixOf(path))
		if target, err := filepath.EvalSymlinks(path); err == nil {
			add(prefixOf(target))
		}
	}
	for _, prefix := range systemPrefixes {
		add(prefix)
	}
	add(condaPrefix)
	if home, err := os.UserHomeDir(); err == nil {
		add(filepath.Join(home, ".local"))
	}
	return all
}

// prefixOf is the folder that a program bin/python3 is installed in; "" if it lies in another
// folder than bin.
func prefixOf(program string) string {
	path, err := filepath.Abs(program)
	if err != nil || filepath.Base(filepath.Dir(path)) != "bin" {
		return ""
	}
	return filepath.Dir(filepath.Dir(path))
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func boolInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
