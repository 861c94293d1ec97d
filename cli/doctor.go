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

// diagnosis is what `engine doctor` tells.
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
	Kernels        []kernelPath      `json:"kernels"` // the best first
	Auto           string            `json:"auto"`    // the path that kernels = "auto" takes
	Threads        int               `json:"threads"` // that threads = 0 takes
	BFloat16       string            `json:"bfloat16"`
	CUDA           cudaDiagnosis     `json:"cuda"`
	Registered     []string          `json:"registered"` // by this program, beside what engine has
}

// kernelPath is a way to compute on the processor.
type kernelPath struct {
	Name      string `json:"name"`
	Available bool   `json:"available"`
	Why       string `json:"why"` // it is available, or not
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

// bfloat16 says what mixed precision would gain here.
func bfloat16(paths []kernelPath) string {
	i := slices.IndexFunc(paths, func(p kernelPath) bool { return p.Available })
	if i >= 0 {
		switch paths[i].Name {
		case "amx":
			return "fast: products on AMX tiles, summed in float32"
		case "avx512bf16":
			return "fast: products by AVX-512 BF16, summed in float32"
		}
	}
	return "half the memory, no speed: without AVX-512 BF16 or AMX its products are as slow as float32's"
}

func (a *app) newDoctor() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Show what this machine can compute with, and what is used of it",
		Long: `Show the machine as engine sees it: processor, memory, caches, the vector units
that kernels can use, which kernels there are, which of them device.kernels =
"auto" takes, and why not a better one; and the GPUs that device.kind = "cuda" can use,
with CUDA's libraries, or what of these is lacking, and whether device.kind = "auto" takes
one: it has to have passed a self-test, which the first run with it makes. A program that registers things of
its own lists them.`,
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
	row("lacking", "%s", orUnknown(features(d.Features, false)))
	for i, k := range d.Kernels {
		name := "kernels"
		if i > 0 {
			name = ""
		}
		row(name, "%s", k.describe(d.Auto))
	}
	row("threads", "%d, unless device.threads says otherwise", d.Threads)
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
		state = "taken by auto"
	case k.Available:
		state = "available"
	}
	return fmt.Sprintf("%s, %s: %s", k.Name, state, k.Why)
}

// features lists those that the processor has, or lacks.
func features(all []sysinfo.Feature, has bool) string {
	var names []string
	for _, f := range all {
		if f.Has == has {
			names = append(names, f.Name)
		}
	}
	if len(names) == 0 && len(all) > 0 {
		return "nothing"
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
