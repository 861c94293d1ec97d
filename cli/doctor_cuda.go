package cli

import (
	"fmt"
	"strings"

	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// cudaDiagnosis is what `engine doctor` tells of GPUs.
type cudaDiagnosis struct {
	Driver   string       `json:"driver"` // the library and its version; "": none
	Compiler string       `json:"nvrtc"`
	NoNVRTC  string       `json:"no_nvrtc"`    // why there is none; "": there is
	Kernels  string       `json:"kernels"`     // how a GPU gets them; "": it does not
	BLAS     string       `json:"cublaslt"`    // as Driver
	NoBLAS   string       `json:"no_cublaslt"` // why products are computed without it; "": they are not
	Devices  []cudaDevice `json:"devices"`
	Auto     string       `json:"auto"`  // what device.kind = "auto" takes; "": there is no GPU
	Lacks    []string     `json:"lacks"` // why device.kind = "cuda" cannot be used
}

type cudaDevice struct {
	Name        string `json:"name"`
	Capability  string `json:"compute_capability"`
	MemoryBytes int64  `json:"memory_bytes"`
	Peers       []int  `json:"peers"` // the devices whose memory it copies from without a way through the host
}

func diagnoseCUDA() cudaDiagnosis {
	found := cuda.Describe(device.CUDAOptions())
	d := cudaDiagnosis{Devices: []cudaDevice{}, Lacks: []string{}}
	if found.Driver != nil {
		d.Driver = found.Driver.String()
	}
	switch {
	case found.NVRTC != nil:
		d.Compiler, d.Kernels = found.NVRTC.String(), "compiled here by NVRTC for the GPU, once"
	case found.PTX:
		d.Kernels = "those that come with this build, as PTX, since there is no NVRTC; with it (`pip install nvidia-cuda-nvrtc-cu12`, or the CUDA toolkit) they are made for the GPU itself, and it starts faster"
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

// lines say it for a person.
func (d cudaDiagnosis) lines() []string {
	var lines []string
	for i, g := range d.Devices {
		line := fmt.Sprintf("device %d (cuda:%d): %s, compute capability %s, %s", i, i, g.Name, g.Capability, words.Bytes(g.MemoryBytes))
		switch {
		case len(g.Peers) > 0:
			line += fmt.Sprintf(", copies from the memory of %d", g.Peers)
		case len(d.Devices) > 1:
			line += ", copies from other devices by way of the host"
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

// products say what computes products of matrices, where there is a device to do it.
func (d cudaDiagnosis) products() []string {
	switch {
	case len(d.Devices) == 0:
		return nil
	case d.BLAS != "":
		return []string{"products: cuBLASLt's, " + d.BLAS}
	case d.NoBLAS == "": // it was asked for: its lack is one of the device's
		return nil
	}
	return append([]string{"products: engine's own kernels, bfloat16 on tensor cores"}, strings.Split(d.NoBLAS, "\n")...)
}
