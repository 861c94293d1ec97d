package cuda

import (
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"

	"github.com/troupe-ml/troupe/tensorops/cuda/internal/driver"
	"github.com/troupe-ml/troupe/tensorops/cuda/kernels"
)

// modules are the kernel files, each compiled to a module that is loaded when one of
// its kernels is first asked for. After its making it is the owner's thread's alone.
type modules struct {
	driver    *driver.Driver
	files     []*kernelFile
	functions map[string]driver.Function
	nowhere   bool           // all kernels are there, and none is: see Dry
	shared    map[string]int // dynamic shared memory that kernels are allowed beyond what all may have
}

// kernelFile is one *.cu.
type kernelFile struct {
	driver.Source

	image    []byte
	compile  func() ([]byte, error) // past the cache
	cached   bool                   // image came from the cache
	module   driver.Module
	isLoaded bool
}

// newModules compiles all kernels for a target, or finds them in the cache.
func newModules(d *driver.Driver, c *driver.Compiler, target string, cache cache) (*modules, error) {
	files, err := sources("*.cu")
	if err != nil {
		return nil, err
	}
	headers, err := sources("*.cuh")
	if err != nil {
		return nil, err
	}
	m := &modules{driver: d, functions: make(map[string]driver.Function)}
	failures := make([]error, len(files))
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	var ended sync.WaitGroup
	for i, source := range files {
		f := &kernelFile{Source: source}
		m.files = append(m.files, f)
		key := cache.key(c, target, source, headers)
		f.compile = func() ([]byte, error) {
			image, err := c.Compile(source, headers, target, kernels.CompileOptions...)
			if err == nil {
				cache.store(key, image)
			}
			return image, err
		}
		ended.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if f.image, f.cached = cache.load(key); !f.cached {
				f.image, failures[i] = f.compile()
			}
		})
	}
	ended.Wait()
	return m, errors.Join(failures...)
}

// sources reads the embedded files that match a pattern.
func sources(pattern string) ([]driver.Source, error) {
	return driver.ReadSources(kernels.Files, pattern)
}

// function finds a kernel, and loads its module if it is the first of it.
func (m *modules) function(kernel string) (driver.Function, error) {
	if f, ok := m.functions[kernel]; ok || m.nowhere {
		return f, nil
	}
	file, err := m.fileOf(kernel)
	if err != nil {
		return 0, err
	}
	if err := m.load(file); err != nil {
		return 0, fmt.Errorf("%s: %w", file.Name, err)
	}
	f, err := m.driver.Function(file.module, kernel)
	if err != nil {
		return 0, fmt.Errorf("kernel %s of %s: %w", kernel, file.Name, err)
	}
	m.functions[kernel] = f
	return f, nil
}

// allow lets a kernel's blocks have that many bytes of dynamic shared memory.
func (m *modules) allow(kernel string, f driver.Function, bytes int) error {
	if bytes <= driver.FreeShared || bytes <= m.shared[kernel] {
		return nil
	}
	if err := m.driver.AllowShared(f, bytes); err != nil {
		return err
	}
	if m.shared == nil {
		m.shared = make(map[string]int)
	}
	m.shared[kernel] = bytes
	return nil
}

// definition is where a file defines a kernel: KERNEL(name), or a macro around it whose first
// argument is the name, or what comes before mixedForm in it.
var definition = regexp.MustCompile(`(?m)^\s*[A-Z][A-Z0-9_]*\((\w+)[,)]`)

// definedIn says by kernel which file defines it.
var definedIn = sync.OnceValues(func() (map[string]string, error) {
	files, err := sources("*.cu")
	in := make(map[string]string)
	for _, f := range files {
		for _, found := range definition.FindAllStringSubmatch(f.Text, -1) {
			if in[found[1]] == "" {
				in[found[1]] = f.Name
			}
		}
	}
	return in, err
})

// fileOf finds the file that defines a kernel.
func (m *modules) fileOf(kernel string) (*kernelFile, error) {
	in, err := definedIn()
	if err != nil {
		return nil, err
	}
	name := in[strings.TrimSuffix(kernel, mixedForm)]
	for _, f := range m.files {
		if f.Name == name {
			return f, nil
		}
	}
	return nil, fmt.Errorf("no kernel file has KERNEL(%s)", kernel)
}

// load brings a file's module onto the device. What came from the cache and is refused
// is compiled again: the cache is only a copy.
func (m *modules) load(f *kernelFile) (err error) {
	if f.isLoaded {
		return nil
	}
	f.module, err = m.driver.Load(f.image)
	if err != nil && f.cached {
		f.cached = false
		if f.image, err = f.compile(); err == nil {
			f.module, err = m.driver.Load(f.image)
		}
	}
	f.isLoaded = err == nil
	return err
}

// close unloads all.
func (m *modules) close() {
	for _, f := range m.files {
		if f.isLoaded {
			_ = m.driver.Unload(f.module) // the context ends in any case
		}
	}
}
