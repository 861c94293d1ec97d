package cli

import (
	"fmt"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// cudaDiagnosis is what `engine doctor` prints about GPUs.
type cudaDiagnosis struct {
	Driver   string       `json:"driver"` // the library and its version; "": none
	Compiler string       `json:"nvrtc"`
	NoNVRTC  string       `json:"no_nvrtc"`    // why there is none; "": there is one
	Kernels  string       `json:"kernels"`     // how a GPU gets its kernels; "": it does not
	BLAS     string       `json:"cublaslt"`    // the library and its version; "": none
	NoBLAS   string       `json:"no_cublaslt"` // why matrix products are computed without it; "": they use it
	Devices  []cudaDevice `json:"devices"`
	Auto     string       `json:"auto"`  // what device.kind = "auto" selects; "": there is no GPU
	Lacks    []string     `json:"lacks"` // why device.kind = "cuda" can't be used
}

type cudaDevice struct {
	Name        string `json:"name"`
	Capability  string `json:"compute_capability"`
	MemoryBytes int64  `json:"memory_bytes"`
	Peers       []int  `json:"peers"` // the devices that it can copy from directly, without the host
}

func diagnoseCUDA() cudaDiagnosis {
	found := cuda.Describe(device.CUDAOptions())
	d := cudaDiagnosis{Devices: []cudaDevice{}, Lacks: []string{}}
	if found.Driver != nil {
		d.Driver = found.Driver.String()
	}
	switch {
	case found.NVRTC != nil:
		d.Compiler, d.Kernels = found.NVRTC.String(), "compiled once by NVRTC, for this GPU"
	case found.PTX:
		d.Kernels = "PTX from this build, because NVRTC is missing. To compile them for this GPU and start faster, install NVRTC: `pip install nvidia-cuda-nvrtc-cu12`, or the CUDA toolkit"
	}
	if found.NoNVRTC != nil {
		d.NoNVRTC = found.NoNVRTC.Error()
	}
	if found.BLAS != nil {
		d.BLAS = found.BLAS.String()
	}
	if found.NoBLAS != nil {
		d.NoBLAS = found.NoBLAS.Error()
	}
	d.Auto = device.AutoState()
	for _, g := range found.Devices {
		d.Devices = append(d.Devices, cudaDevice{g.Name, fmt.Sprintf("%d.%d", g.Major, g.Minor), g.Bytes, append([]int{}, g.Peers...)})
	}
	for _, err := range found.Lacks {
		d.Lacks = append(d.Lacks, err.Error())
	}
	return d
}

// lines formats the diagnosis for people.
func (d cudaDiagnosis) lines() []string {
	var lines []string
	for i, g := range d.Devices {
		line := fmt.Sprintf("device %d (cuda:%d): %s, compute capability %s, %s", i, i, g.Name, g.Capability, words.Bytes(g.MemoryBytes))
		switch {
		case len(g.Peers) > 0:
			line += fmt.Sprintf(", copies directly from devices %d", g.Peers)
		case len(d.Devices) > 1:
			line += ", copies from other devices through the host"
		}
		lines = append(lines, line)
	}
	if d.Driver != "" {
		lines = append(lines, "driver: "+d.Driver)
	}
	if d.Compiler != "" {
		lines = append(lines, "NVRTC: "+d.Compiler)
	}
	if d.Kernels != "" {
		lines = append(lines, "kernels: "+d.Kernels)
	}
	lines = append(lines, d.products()...)
	if d.Auto != "" {
		lines = append(lines, `device.kind = "auto": `+d.Auto)
	}
	for _, lack := range d.Lacks {
		lines = append(lines, strings.Split(lack, "\n")...)
	}
	return lines
}

// products says which library computes matrix products, if there is a GPU.
func (d cudaDiagnosis) products() []string {
	switch {
	case len(d.Devices) == 0:
		return nil
	case d.BLAS != "":
		return []string{"matrix products: cuBLASLt, " + d.BLAS}
	case d.NoBLAS == "": // it was requested: Lacks says what is missing
		return nil
	}
	return append([]string{"matrix products: engine's own kernels, bfloat16 on tensor cores"}, strings.Split(d.NoBLAS, "\n")...)
}
