// Command ptxgen compiles the kernels to the PTX that package kernels embeds: see
// scripts/cuda-ptx.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
	"github.com/troupe-ml/troupe/tensorops/cuda/kernels"
)

func main() {
	nvrtc := flag.String("nvrtc", "", "`path` of NVRTC's library")
	out := flag.String("out", "", "`folder` for the output; other files in it are removed")
	flag.Parse()
	if *nvrtc == "" || *out == "" || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "ptxgen: set --nvrtc and --out")
		os.Exit(2)
	}
	if err := generate(*nvrtc, *out); err != nil {
		fmt.Fprintln(os.Stderr, "ptxgen:", err)
		os.Exit(1)
	}
}

// generate compiles all kernel files, and writes only if each could be.
func generate(nvrtc, out string) error {
	c, err := driver.OpenCompiler(driver.Libraries{NVRTC: nvrtc}, 0)
	if err != nil {
		return err
	}
	files, err := driver.ReadSources(kernels.Files, "*.cu")
	if err != nil {
		return err
	}
	headers, err := driver.ReadSources(kernels.Files, "*.cuh")
	if err != nil {
		return err
	}
	packed := make([][]byte, len(files))
	failures := make([]error, len(files))
	var ended sync.WaitGroup
	for i, file := range files {
		ended.Go(func() {
			text, err := c.Compile(file, headers, kernels.PTXTarget, kernels.CompileOptions...)
			if err == nil {
				packed[i], err = kernels.PackPTX(text)
			}
			failures[i] = err
		})
	}
	ended.Wait()
	if err := errors.Join(failures...); err != nil {
		return err
	}
	if err := empty(out); err != nil {
		return err
	}
	all := 0
	for i, file := range files {
		all += len(packed[i])
		if err := os.WriteFile(filepath.Join(out, kernels.PTXName(file.Name)), packed[i], 0o644); err != nil {
			return err
		}
	}
	major, minor := c.Version()
	name, record, err := kernels.NewPTXRecord(major, minor)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d files, %d KiB, by NVRTC %d.%d\n", out, len(files), all>>10, major, minor)
	return os.WriteFile(filepath.Join(out, name), []byte(record), 0o644)
}

// empty removes the PTX that a folder holds, of files that may be no more.
func empty(folder string) error {
	old, err := filepath.Glob(filepath.Join(folder, kernels.PTXName("*")))
	if err != nil {
		return err
	}
	for _, path := range old {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}
