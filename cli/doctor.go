package cli

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/internal/base/registry"
	"github.com/troupe-ml/troupe/internal/base/words"
	"github.com/troupe-ml/troupe/internal/host/sysinfo"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// diagnosis is what `engine doctor` prints.
type diagnosis struct {
	Processor      string            `json:"processor"`
	Cores          int               `json:"cores"` // that this process may use
	OS             string            `json:"os"`
	Arch           string            `json:"arch"`
	Go             string            `json:"go"`
	MemoryBytes    int64             `json:"memory_bytes"` // 0: unknown
	AvailableBytes int64             `json:"available_bytes"`
	Caches         []sysinfo.Cache   `json:"caches"`
	Features       []sysinfo.Feature `json:"features"`
	Kernels        []kernelPath      `json:"kernels"` // the fastest first
	Auto           string            `json:"auto"`    // the kernels that device.kernels = "auto" selects
	Threads        int               `json:"threads"` // the number that device.threads = 0 selects
	BFloat16       string            `json:"bfloat16"`
	CUDA           cudaDiagnosis     `json:"cuda"`
	Registered     []string          `json:"registered"` // names that this program has added to engine's
}

// kernelPath is one set of CPU kernels.
type kernelPath struct {
	Name      string `json:"name"`
	Available bool   `json:"available"`
	Why       string `json:"why"` // why it is available, or not
}

func diagnose() diagnosis {
	d := diagnosis{
		Processor: sysinfo.ProcessorName(), Cores: runtime.GOMAXPROCS(0), OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version(),
		MemoryBytes: sysinfo.TotalBytes(), AvailableBytes: sysinfo.MemoryBytes(), Caches: sysinfo.Caches(), Features: sysinfo.Features(),
		Auto: cpu.Paths()[0], Threads: runtime.GOMAXPROCS(0), Registered: append([]string{}, registry.Names()...),
	}
	for _, p := range cpu.Explain() {
		d.Kernels = append(d.Kernels, kernelPath(p))
	}
	d.BFloat16 = bfloat16(d.Kernels)
	d.CUDA = diagnoseCUDA()
	return d
}

// bfloat16 says what mixed precision gains on this processor.
func bfloat16(paths []kernelPath) string {
	i := slices.IndexFunc(paths, func(p kernelPath) bool { return p.Available })
	if i >= 0 {
		switch paths[i].Name {
		case "amx":
			return "fast: matrix products on AMX tiles, summed in float32"
		case "avx512bf16":
			return "fast: matrix products with AVX-512 BF16, summed in float32"
		}
	}
	return "half the memory, but no faster: without AVX-512 BF16 or AMX, matrix products are as slow as in float32"
}

func (a *app) newDoctor() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Show the CPU, the GPUs, and what engine uses of them",
		Long: `Show what engine finds on this machine. Use it if a run is slow or does not use the GPU.

CPU: processor, memory, caches, vector units, the available kernels, which of them
device.kernels = "auto" selects, and why not a faster one.

GPU: the GPUs that device.kind = "cuda" can use, the CUDA libraries, and what is missing.
device.kind = "auto" uses a GPU only after a self-test, which the first run with it makes;
the result is shown here.

A custom program also lists the names that it has registered.

See also: engine version, engine plan (predicts speed and memory).`,
		Example: `  engine doctor
  engine doctor --json`,
		Args: takes(),
		RunE: a.work(func(*cobra.Command, []string) error {
			d := diagnose()
			if asJSON {
				return a.json(d)
			}
			a.showDiagnosis(d)
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func (a *app) showDiagnosis(d diagnosis) {
	w := tabwriter.NewWriter(a.people(), 0, 0, 2, ' ', 0)
	row := func(name, format string, args ...any) { _, _ = fmt.Fprintf(w, name+"\t"+format+"\n", args...) }
	row("processor", "%s", orUnknown(d.Processor))
	row("cores", "%d usable", d.Cores)
	row("system", "%s/%s, %s", d.OS, d.Arch, d.Go)
	row("memory", "%s, %s available", sizeOf(d.MemoryBytes), sizeOf(d.AvailableBytes))
	var caches []string
	for _, c := range d.Caches {
		caches = append(caches, fmt.Sprintf("L%d %s %s", c.Level, c.Type, words.Bytes(c.Bytes)))
	}
	row("caches", "%s", orUnknown(strings.Join(caches, ", ")))
	row("features", "%s", orUnknown(features(d.Features, true)))
	row("missing", "%s", orUnknown(features(d.Features, false)))
	for i, k := range d.Kernels {
		name := "kernels"
		if i > 0 {
			name = ""
		}
		row(name, "%s", k.describe(d.Auto))
	}
	row("threads", "%d, unless device.threads is set", d.Threads)
	row("bfloat16", "%s", d.BFloat16)
	for i, line := range d.CUDA.lines() {
		name := "CUDA"
		if i > 0 {
			name = ""
		}
		row(name, "%s", line)
	}
	if len(d.Registered) > 0 {
		row("registered", "%s", strings.Join(d.Registered, ", "))
	}
	_ = w.Flush() // its writer keeps the error
}

func (k kernelPath) describe(auto string) string {
	state := "not available"
	switch {
	case k.Name == auto:
		state = "selected by auto"
	case k.Available:
		state = "available"
	}
	return fmt.Sprintf("%s, %s: %s", k.Name, state, k.Why)
}

// features lists the features that the processor has, or those that it lacks.
func features(all []sysinfo.Feature, has bool) string {
	var names []string
	for _, f := range all {
		if f.Has == has {
			names = append(names, f.Name)
		}
	}
	if len(names) == 0 && len(all) > 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func sizeOf(bytes int64) string {
	if bytes == 0 {
		return "unknown"
	}
	return words.Bytes(bytes)
}

func orUnknown(text string) string {
	if text == "" {
		return "unknown"
	}
	return text
}
