package driver

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Libraries says where the libraries are. An empty path means the usual places.
type Libraries struct {
	Driver string // libcuda.so.1, which comes with the GPU's driver
	NVRTC  string // libnvrtc.so, which comes with the CUDA toolkit or a Python package
}

// driverCandidates are what the driver's library is called. The loader looks for names
// without a folder in LD_LIBRARY_PATH and in the system's folders.
func (l Libraries) driverCandidates() []string {
	if l.Driver != "" {
		return []string{l.Driver}
	}
	return []string{"libcuda.so.1", "libcuda.so", "/usr/lib/wsl/lib/libcuda.so.1"}
}

// nvrtcMajors are the major versions of NVRTC that are looked for; version 11 is named
// after 11.2 in all of its releases since.
var nvrtcMajors = []struct {
	major int
	file  string
}{{13, "libnvrtc.so.13"}, {12, "libnvrtc.so.12"}, {11, "libnvrtc.so.11.2"}}

// nvrtcCandidates are the places where NVRTC may be. What is no newer than the driver
// comes first: a driver need not know what a newer compiler writes.
func (l Libraries) nvrtcCandidates(driverMajor int) []string {
	if l.NVRTC != "" {
		return []string{l.NVRTC}
	}
	majors := slices.Clone(nvrtcMajors)
	slices.SortStableFunc(majors, func(a, b struct {
		major int
		file  string
	}) int {
		return boolInt(a.major > driverMajor) - boolInt(b.major > driverMajor)
	})
	var names, all []string
	for _, m := range majors {
		names = append(names, m.file)
	}
	folders := toolkitFolders()
	for _, name := range append(names, "libnvrtc.so") {
		all = append(all, name)
		for _, folder := range folders {
			if path := filepath.Join(folder, name); exists(path) {
				all = append(all, path)
			}
		}
	}
	return all
}

// nowhere says which folders nvrtcCandidates looked through, for the error.
func nowhere() string {
	return fmt.Sprintf("\nNor is it in $CUDA_HOME, /usr/local/cuda* or Python's packages (%d folders of those exist). "+
		"It comes with the CUDA toolkit, and with `pip install nvidia-cuda-nvrtc-cu12`", len(toolkitFolders()))
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
	prefixes := []string{"/usr", "/usr/local"}
	for _, variable := range []string{"VIRTUAL_ENV", "CONDA_PREFIX"} {
		if prefix := os.Getenv(variable); prefix != "" {
			prefixes = append([]string{prefix}, prefixes...)
			patterns = append(patterns, filepath.Join(prefix, "lib"))
		}
	}
	if home, err := os.UserHomeDir(); err == nil {
		prefixes = append(prefixes, filepath.Join(home, ".local"))
	}
	for _, prefix := range prefixes {
		for _, packages := range []string{"site-packages", "dist-packages"} {
			patterns = append(patterns, filepath.Join(prefix, "lib", "python3*", packages, "nvidia", "*", "lib"))
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
