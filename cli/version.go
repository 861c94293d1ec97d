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

// release is the version of this source tree. The CHANGELOG lists the same.
const release = "v0.1.0"

// build is what `engine version` prints.
type build struct {
	Version string   `json:"version"`
	Go      string   `json:"go"`
	OS      string   `json:"os"`
	Arch    string   `json:"arch"`
	Kernels []string `json:"kernels"` // that this processor can run, the fastest first

	Module   string `json:"module,omitempty"`   // the main module and its version, where known
	Commit   string `json:"commit,omitempty"`   // of the main module, where known
	Date     string `json:"date,omitempty"`     // of the commit, in RFC 3339
	Modified bool   `json:"modified,omitempty"` // the build has changes that are not in the commit
	Tags     string `json:"tags,omitempty"`     // build tags, such as nocuda
}

func describeBuild() build {
	b := build{Version: release, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, Kernels: cpu.Paths()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" && v != release {
		b.Module = info.Main.Path + " " + v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Date = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		case "-tags":
			b.Tags = s.Value
		}
	}
	return b
}

// lines are the facts about the build that engine version prints after the version.
func (b build) lines() []string {
	var lines []string
	if b.Module != "" {
		lines = append(lines, "module: "+b.Module)
	}
	if b.Commit != "" {
		line := "commit: " + b.Commit
		if b.Date != "" {
			line += " of " + b.Date
		}
		if b.Modified {
			line += ", with uncommitted changes"
		}
		lines = append(lines, line)
	}
	if b.Tags != "" {
		lines = append(lines, "build tags: "+b.Tags)
	}
	return append(lines, b.Go+" "+b.OS+"/"+b.Arch, "kernels: "+strings.Join(b.Kernels, ", "))
}

// licenses has the licenses of all linked packages: a table, then their texts.
//
//go:embed licenses.txt
var licenses string

func (a *app) newVersion() *cobra.Command {
	var asJSON, withLicenses bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version, the build and the usable CPU kernels",
		Long: `Print the version of engine, the commit with its date and the build tags where they are
known, the version of Go, and the CPU kernels that this processor can run, the fastest
first. Quote the output in a bug report. All processes of a cluster must run the same build.

See also: engine doctor shows why a kernel is or is not available.`,
		Example: `  engine version
  engine version --json
  engine version --licenses`,
		Args: takes(),
		RunE: a.work(func(*cobra.Command, []string) error {
			if withLicenses {
				if asJSON {
					return usagef("--licenses and --json can't be combined; use only one")
				}
				_, err := io.WriteString(a.people(), licenses)
				return err
			}
			b := describeBuild()
			if asJSON {
				return a.json(b)
			}
			a.printf("engine %s\n%s\n", b.Version, strings.Join(b.lines(), "\n"))
			return nil
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().BoolVar(&withLicenses, "licenses", false, "print the licenses of engine and of all packages linked into it")
	return cmd
}
