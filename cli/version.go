package cli

import (
	_ "embed"
	"io"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// build is what `engine version` tells.
type build struct {
	Version string   `json:"version"`
	Go      string   `json:"go"`
	OS      string   `json:"os"`
	Arch    string   `json:"arch"`
	Kernels []string `json:"kernels"` // that this processor can run, the best first
}

func describeBuild() build {
	b := build{Version: "(devel)", Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Kernels: cpu.Paths()}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		b.Version = info.Main.Version
	}
	return b
}

// licenses are those of all that is linked: a table, and their texts.
//
//go:embed licenses.txt
var licenses string

func (a *app) newVersion() *cobra.Command {
	var asJSON, withLicenses bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the version, and the kernels that this processor can run",
		Args:  takes(),
		RunE: a.work(func(*cobra.Command, []string) error {
			if withLicenses {
				if asJSON {
					return usagef("--licenses and --json exclude each other")
				}
				_, err := io.WriteString(a.people(), licenses)
				return err
			}
			b := describeBuild()
			if asJSON {
				return a.json(b)
			}
			a.printf("engine %s\n%s %s/%s\nkernels: %s\n", b.Version, b.Go, b.OS, b.Arch, strings.Join(b.Kernels, ", "))
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&withLicenses, "licenses", false, "print the licences of engine and of all that is linked into it")
	return cmd
}
