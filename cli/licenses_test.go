package cli

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestLicenses: licenses.txt names every module that is linked on any system, with its version.
// scripts/licenses writes it.
func TestLicenses(t *testing.T) {
	listed := make(map[string]bool)
	for line := range strings.Lines(licenses) {
		if strings.HasPrefix(line, "====") {
			break
		}
		if fields := strings.Fields(line); len(fields) >= 3 {
			listed[strings.Join(fields[len(fields)-2:], " ")] = true
		}
	}
	for _, goos := range []string{"linux", "darwin", "windows"} {
		cmd := exec.Command("go", "list", "-deps", "-f", "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}{{end}}{{end}}", ".")
		cmd.Env = append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0")
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for module := range strings.Lines(string(out)) {
			if module = strings.TrimSpace(module); module != "" && !listed[module] {
				t.Errorf("on %s %s is linked, and licenses.txt does not name it: make licenses", goos, module)
			}
		}
	}
}
