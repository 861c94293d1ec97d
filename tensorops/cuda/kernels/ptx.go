package kernels

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// CompileOptions are NVRTC's, beside the architecture.
var CompileOptions = []string{"--std=c++17"}

// The kernels come compiled to PTX as well, for machines without a compiler: the driver
// translates it for its GPU, of compute capability PTXMajor.PTXMinor or later. It has to be
// of CUDA PTXDriver or later, as the compiler was. `make ptx` writes it.
const (
	PTXTarget = "compute_80"
	PTXMajor  = 8
	PTXMinor  = 0
	PTXDriver = 12
)

//go:embed ptx
var ptx embed.FS

// Names in folder ptx: a kernel file's, and that of the record of what it was made from.
const (
	ptxSuffix = ".ptx.gz"
	ptxRecord = "SOURCES"
)

// PTX is what a kernel file was compiled to.
func PTX(file string) ([]byte, error) {
	packed, err := ptx.ReadFile("ptx/" + PTXName(file))
	if err != nil {
		return nil, err
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", PTXName(file), err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", PTXName(file), err)
	}
	return text, nil
}

// PTXName is the name of a kernel file's PTX in folder ptx.
func PTXName(file string) string { return strings.TrimSuffix(file, ".cu") + ptxSuffix }

// PackPTX compresses PTX: the same bytes for the same text.
func PackPTX(text []byte) ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression) // its header has no time
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(bytes.TrimRight(text, "\x00")); err != nil {
		return nil, err
	}
	err = z.Close()
	return out.Bytes(), err
}

// PTXRecord is what folder ptx says of its origin.
func PTXRecord() (string, error) {
	text, err := ptx.ReadFile("ptx/" + ptxRecord)
	return string(text), err
}

// NewPTXRecord says of PTX that a version of NVRTC has made it from the sources here. It
// returns the file's name too.
func NewPTXRecord(major, minor int) (name, text string, err error) {
	sum, err := digest()
	return ptxRecord, fmt.Sprintf("sources %s\nNVRTC %d.%d for %s with %s\n", sum, major, minor, PTXTarget, strings.Join(CompileOptions, " ")),
		err
}

// PTXIsCurrent reports whether the PTX was made from the sources here.
func PTXIsCurrent() (bool, error) {
	sum, err := digest()
	if err != nil {
		return false, err
	}
	record, err := PTXRecord()
	return strings.HasPrefix(record, "sources "+sum+"\n"), err
}

// digest is the SHA-256 of all sources with their names.
func digest() (string, error) {
	h := sha256.New()
	for _, pattern := range []string{"*.cu", "*.cuh"} {
		names, err := fs.Glob(Files, pattern)
		if err != nil {
			return "", err
		}
		for _, name := range names {
			text, err := Files.ReadFile(name)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(h, "%s: %d bytes\n%s", name, len(text), text)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
