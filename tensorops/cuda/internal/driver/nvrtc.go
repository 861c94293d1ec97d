package driver

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"unsafe"
)

const (
	nvrtcVersion function = iota
	nvrtcGetNumSupportedArchs
	nvrtcGetSupportedArchs
	nvrtcCreateProgram
	nvrtcDestroyProgram
	nvrtcCompileProgram
	nvrtcGetProgramLogSize
	nvrtcGetProgramLog
	nvrtcGetPTXSize
	nvrtcGetPTX
	nvrtcGetCUBINSize
	nvrtcGetCUBIN
)

var nvrtcNames = []string{
	nvrtcVersion:              "nvrtcVersion",
	nvrtcGetNumSupportedArchs: "nvrtcGetNumSupportedArchs",
	nvrtcGetSupportedArchs:    "nvrtcGetSupportedArchs",
	nvrtcCreateProgram:        "nvrtcCreateProgram",
	nvrtcDestroyProgram:       "nvrtcDestroyProgram",
	nvrtcCompileProgram:       "nvrtcCompileProgram",
	nvrtcGetProgramLogSize:    "nvrtcGetProgramLogSize",
	nvrtcGetProgramLog:        "nvrtcGetProgramLog",
	nvrtcGetPTXSize:           "nvrtcGetPTXSize",
	nvrtcGetPTX:               "nvrtcGetPTX",
	nvrtcGetCUBINSize:         "nvrtcGetCUBINSize",
	nvrtcGetCUBIN:             "nvrtcGetCUBIN",
}

// Compiler is NVRTC's library. It needs no GPU, and is safe for concurrent use.
type Compiler struct {
	library      *library
	major, minor int
	archs        []int // that it knows, ascending; 90 is sm_90
}

// OpenCompiler opens NVRTC. Given the choice it takes one that is no newer than the
// driver's major version of CUDA.
func OpenCompiler(l Libraries, driverMajor int) (*Compiler, error) {
	candidates := l.nvrtcCandidates(driverMajor)
	lib, err := openFirst("NVRTC, the compiler's library (of CUDA 11.2 or later),", candidates, nvrtcNames)
	if err != nil {
		if l.NVRTC == "" && unavailable == "" {
			err = fmt.Errorf("%w%s", err, nowhere("nvidia-cuda-nvrtc-cu12"))
		}
		return nil, err
	}
	openBuiltins(lib.path)
	c := &Compiler{library: lib}
	var major, minor, n int32
	if err := c.do(nvrtcVersion, uintptr(unsafe.Pointer(&major)), uintptr(unsafe.Pointer(&minor))); err != nil {
		return nil, err
	}
	c.major, c.minor = int(major), int(minor)
	if err := c.do(nvrtcGetNumSupportedArchs, uintptr(unsafe.Pointer(&n))); err != nil {
		return nil, err
	}
	archs := make([]int32, max(n, 1))
	if err := c.do(nvrtcGetSupportedArchs, uintptr(unsafe.Pointer(&archs[0]))); err != nil {
		return nil, err
	}
	for _, a := range archs[:n] {
		c.archs = append(c.archs, int(a))
	}
	slices.Sort(c.archs)
	return c, nil
}

// openBuiltins opens the second library that NVRTC asks the loader for by its name
// alone: from a folder that the loader does not know, it is found only if it is open.
func openBuiltins(path string) {
	if filepath.Base(path) == path {
		return
	}
	matches, err := filepath.Glob(filepath.Join(filepath.Dir(path), "libnvrtc-builtins.so*"))
	if err != nil {
		return
	}
	for _, m := range matches {
		_, _ = open(m) // if it cannot be opened, compiling says so
	}
}

// Path is the library's, as it was given to the loader.
func (c *Compiler) Path() string { return c.library.path }

// Version is CUDA's that the compiler is of.
func (c *Compiler) Version() (major, minor int) { return c.major, c.minor }

// Target is the architecture to compile for on a device: its own, as machine code; or,
// for a device that is newer than the compiler, the newest that both know, as PTX, which
// the driver translates.
func (c *Compiler) Target(g *Device) (string, error) {
	own := 10*g.Major + g.Minor
	best := 0
	for _, a := range c.archs {
		if a <= own {
			best = a
		}
	}
	switch best {
	case own:
		return fmt.Sprintf("sm_%d", own), nil
	case 0:
		return "", fmt.Errorf("%w: %s of CUDA %d.%d compiles for %v, but the device %s is sm_%d: use an older NVRTC",
			ErrUnavailable, c.Path(), c.major, c.minor, c.archs, g.Name, own)
	}
	return fmt.Sprintf("compute_%d", best), nil
}

// Source is a file for the compiler.
type Source struct{ Name, Text string }

// ReadSources reads the files of a folder that match a pattern.
func ReadSources(folder fs.FS, pattern string) ([]Source, error) {
	names, err := fs.Glob(folder, pattern)
	if err != nil {
		return nil, err
	}
	var all []Source
	for _, name := range names {
		text, err := fs.ReadFile(folder, name)
		if err != nil {
			return nil, err
		}
		all = append(all, Source{Name: name, Text: string(text)})
	}
	return all, nil
}

// Compile compiles a file, which may include the headers by their names, and returns
// machine code for a target sm_…, PTX for compute_…. The error has the compiler's log.
func (c *Compiler) Compile(file Source, headers []Source, target string, options ...string) (image []byte, err error) {
	image, _, err = c.CompileLogged(file, headers, target, options...)
	return image, err
}

// CompileLogged is Compile with what the compiler has said of a file that it has compiled.
func (c *Compiler) CompileLogged(file Source, headers []Source, target string, options ...string) (image []byte, log string, err error) {
	var pin runtime.Pinner
	defer pin.Unpin()
	var names, texts []string
	for _, h := range headers {
		names, texts = append(names, h.Name), append(texts, h.Text)
	}
	var program uintptr
	err = c.do(nvrtcCreateProgram, uintptr(unsafe.Pointer(&program)), cString(&pin, file.Text), cString(&pin, file.Name),
		uintptr(len(headers)), cStrings(&pin, texts), cStrings(&pin, names))
	if err != nil {
		return nil, "", err
	}
	defer func() {
		if end := c.do(nvrtcDestroyProgram, uintptr(unsafe.Pointer(&program))); err == nil && end != nil {
			image, err = nil, end
		}
	}()
	options = append([]string{"--gpu-architecture=" + target}, options...)
	failure := c.do(nvrtcCompileProgram, program, uintptr(len(options)), cStrings(&pin, options))
	said, err := c.bytes(program, nvrtcGetProgramLogSize, nvrtcGetProgramLog)
	log = strings.TrimRight(string(said), "\x00\n")
	if failure != nil {
		return nil, log, fmt.Errorf("%s for %s: %w\n%s", file.Name, target, failure, log)
	}
	if err != nil {
		return nil, "", err
	}
	if strings.HasPrefix(target, "compute_") {
		image, err = c.bytes(program, nvrtcGetPTXSize, nvrtcGetPTX)
	} else {
		image, err = c.bytes(program, nvrtcGetCUBINSize, nvrtcGetCUBIN)
	}
	return image, log, err
}

// bytes gets one of a program's results by the function for its size and that for itself.
func (c *Compiler) bytes(program uintptr, size, get function) ([]byte, error) {
	var n uintptr
	if err := c.do(size, program, uintptr(unsafe.Pointer(&n))); err != nil || n == 0 {
		return nil, err
	}
	b := make([]byte, n)
	err := c.do(get, program, uintptr(unsafe.Pointer(&b[0])))
	return b, err
}

//go:uintptrescapes
func (c *Compiler) do(f function, args ...uintptr) error {
	code := call(c.library.functions[f], args...)
	if code == 0 {
		return nil
	}
	e := &Error{Call: nvrtcNames[f], Code: int(code), Name: "nvrtcResult"}
	if int(code) < len(nvrtcResults) && code > 0 {
		e.Name = nvrtcResults[code]
	}
	return e
}

// nvrtcResults names the results by number.
var nvrtcResults = [...]string{
	1: "NVRTC_ERROR_OUT_OF_MEMORY", "NVRTC_ERROR_PROGRAM_CREATION_FAILURE", "NVRTC_ERROR_INVALID_INPUT", "NVRTC_ERROR_INVALID_PROGRAM",
	"NVRTC_ERROR_INVALID_OPTION", "NVRTC_ERROR_COMPILATION", "NVRTC_ERROR_BUILTIN_OPERATION_FAILURE",
}

// cString is a C string that stays where it is until pin is released.
func cString(pin *runtime.Pinner, s string) uintptr {
	b := append([]byte(s), 0)
	pin.Pin(&b[0])
	return uintptr(unsafe.Pointer(&b[0]))
}

// cStrings is a C array of such strings; 0 for none.
func cStrings(pin *runtime.Pinner, values []string) uintptr {
	if len(values) == 0 {
		return 0
	}
	pointers := make([]uintptr, len(values))
	for i, v := range values {
		pointers[i] = cString(pin, v)
	}
	pin.Pin(&pointers[0])
	return uintptr(unsafe.Pointer(&pointers[0]))
}
