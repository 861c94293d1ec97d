//go:build linux && (amd64 || arm64) && !nocuda

package cuda

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// resources are what a compiled kernel takes of a multiprocessor.
type resources struct {
	registers uint32 // of a thread
	stack     uint32 // bytes of a thread in memory: registers that were spilled, arrays that are indexed
	shared    uint64 // bytes of a block
}

// resourcesOf reads them from what NVRTC makes for a GPU: an ELF file whose section
// .nv.info has pieces of a format byte, an attribute byte and a length or value of two
// bytes (the format of NVIDIA's cuobjdump and nvdisasm, of which the tools print it).
func resourcesOf(image []byte) (map[string]resources, error) {
	// The file's version is CUDA's there, which debug/elf does not take for one.
	const version = 20 // of 4 bytes, in the header
	if len(image) < version+4 {
		return nil, fmt.Errorf("%d bytes are no ELF file", len(image))
	}
	image = bytes.Clone(image)
	binary.LittleEndian.PutUint32(image[version:], uint32(elf.EV_CURRENT))
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil, err
	}
	symbols, err := f.Symbols()
	if err != nil {
		return nil, err
	}
	all := make(map[string]resources)
	for _, s := range f.Sections {
		if kernel, ok := strings.CutPrefix(s.Name, ".text."); ok {
			all[kernel] = resources{}
		}
	}
	for _, s := range f.Sections {
		kernel, ok := strings.CutPrefix(s.Name, ".nv.shared.")
		if r, known := all[kernel]; ok && known { // others are the system's
			r.shared = s.Size
			all[kernel] = r
		}
	}
	info := f.Section(".nv.info")
	if info == nil {
		return nil, errors.New("no section .nv.info")
	}
	data, err := info.Data()
	if err != nil {
		return nil, err
	}
	const (
		formatSized   = 4
		attrFrameSize = 0x11
		attrRegisters = 0x2f
	)
	for len(data) >= 4 {
		format, attr, size := data[0], data[1], int(binary.LittleEndian.Uint16(data[2:]))
		data = data[4:]
		if format != formatSized {
			continue
		}
		if size > len(data) {
			return nil, fmt.Errorf("attribute %#x has %d bytes, %d are left", attr, size, len(data))
		}
		value := data[:size]
		data = data[size:]
		if (attr != attrFrameSize && attr != attrRegisters) || size != 8 {
			continue
		}
		// Symbols leaves out the first, which is none.
		index := int(binary.LittleEndian.Uint32(value)) - 1
		if index < 0 || index >= len(symbols) {
			return nil, fmt.Errorf("attribute %#x is of symbol %d of %d", attr, index+1, len(symbols))
		}
		name := symbols[index].Name
		r, ok := all[name]
		if !ok {
			continue // a device function
		}
		if attr == attrFrameSize {
			r.stack = binary.LittleEndian.Uint32(value[4:])
		} else {
			r.registers = binary.LittleEndian.Uint32(value[4:])
		}
		all[name] = r
	}
	return all, nil
}
