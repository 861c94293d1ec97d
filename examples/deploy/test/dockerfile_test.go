//go:build linux

package deploy

import (
	"debug/elf"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// image is a stage of the Dockerfile.
type image struct {
	base, workdir, user string
	entrypoint          []string
	runs                []string // of the shell, in order
	copies              []*instructions.CopyCommand
}

// authorities are the certificates in each image.
const authorities = "/etc/ssl/certs/ca-certificates.crt"

// images reads the stages of the Dockerfile, and the name of the last one.
func images(t *testing.T) (byName map[string]image, last string) {
	t.Helper()
	return imagesOf(t, "../Dockerfile")
}

func imagesOf(t *testing.T, path string) (byName map[string]image, last string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close() //nolint:errcheck // it is only read
	parsed, err := parser.Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range parsed.Warnings {
		t.Errorf("%s: %s", path, w.Short)
	}
	stages, _, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		t.Fatal(err)
	}
	byName = make(map[string]image)
	for _, s := range stages {
		i := image{base: s.BaseName}
		for _, c := range s.Commands {
			switch c := c.(type) {
			case *instructions.WorkdirCommand:
				i.workdir = c.Path
			case *instructions.UserCommand:
				i.user = c.User
			case *instructions.EntrypointCommand:
				if c.PrependShell {
					t.Errorf("stage %s: a shell stands before the entry point, and signals don't arrive", s.Name)
				}
				i.entrypoint = c.CmdLine
			case *instructions.RunCommand:
				i.runs = append(i.runs, strings.Join(c.CmdLine, " "))
			case *instructions.CopyCommand:
				i.copies = append(i.copies, c)
			case *instructions.HealthCheckCommand:
				t.Errorf("stage %s has a health check, for which it has no program", s.Name)
			}
		}
		byName[s.Name], last = i, s.Name
	}
	return byName, last
}

// wantCopies: an image has the engine and the certificates of public authorities, and nothing else.
func wantCopies(t *testing.T, name string, i image) {
	t.Helper()
	if len(i.runs) > 0 || len(i.copies) != 2 || i.copies[0].From != "build" || i.copies[0].DestPath != "/engine" ||
		i.copies[1].From != "build" || i.copies[1].DestPath != authorities || !slices.Equal(i.copies[1].SourcePaths, []string{authorities}) {
		t.Errorf("the image %s has more or less in it than the engine and certificates: %v", name, i.copies)
	}
}

// TestDockerfileGPU: the image for GPUs is of NVIDIA's, and its engine can open the driver's library.
func TestDockerfileGPU(t *testing.T) {
	byName, last := imagesOf(t, "../Dockerfile.gpu")
	i := byName[last]
	if !strings.HasPrefix(i.base, "nvidia/cuda:") || !strings.Contains(i.base, "-runtime-") || i.user != "65534:65534" ||
		!slices.Equal(i.entrypoint, []string{"/engine"}) {
		t.Errorf("the image is %+v", i)
	}
	wantCopies(t, last, i)
	for _, line := range byName["build"].runs {
		if strings.Contains(line, "nocuda") {
			t.Errorf("%s: it can't open CUDA's libraries", line)
		}
	}
}

// TestDockerfile runs the Dockerfile's commands here, and their result in a folder with nothing else in it.
func TestDockerfile(t *testing.T) {
	byName, last := images(t)
	final := byName[last]
	if final.base != "scratch" {
		t.Errorf("the image is made from %s; want scratch", final.base)
	}
	for _, name := range []string{last, "shell"} {
		i := byName[name]
		if i.user != "65534:65534" || i.workdir == "" || !slices.Equal(i.entrypoint, []string{"/engine"}) {
			t.Errorf("the image %s has user %q, folder %q, entry point %q", name, i.user, i.workdir, i.entrypoint)
		}
		wantCopies(t, name, i)
	}
	build := byName["build"]
	for _, c := range build.copies {
		for _, path := range c.SourcePaths {
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Error("copied, but not there:", err)
			}
		}
	}

	dir := folder(t)
	copied := final.copies[0].SourcePaths[0]
	binary := filepath.Join(dir, "engine")
	for _, line := range build.runs {
		cmd := exec.Command("sh", "-c", strings.ReplaceAll(line, copied, binary))
		cmd.Dir, cmd.Env = root, append(os.Environ(), "TARGETOS=linux", "TARGETARCH=")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	f, err := elf.Open(binary)
	if err != nil {
		t.Fatal("the build has not made what is copied:", err)
	}
	defer f.Close() //nolint:errcheck // it is only read
	if libraries, err := f.ImportedLibraries(); err != nil || len(libraries) > 0 ||
		slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Fatalf("it is not static: libraries %v, error %v", libraries, err)
	}
	if os.Geteuid() != 0 {
		t.Skip("only root may start it in a folder of its own")
	}
	inImage(t, final, dir)
}

// inImage trains in a folder that has only the engine and a volume.
func inImage(t *testing.T, i image, dir string) {
	volume := mkdir(t, 0o700, nobody, dir, i.workdir)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(volume, "text.txt"), text, 0o440)
	config := strings.Split(training("out", "text.txt"), "[cluster]")[0]
	write(t, filepath.Join(volume, "config.toml"), config, 0o440)
	s := newSystem(t)
	for _, args := range [][]string{{"version"}, {"run", "config.toml"}} {
		out, in, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(i.entrypoint[0], args...)
		cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = i.workdir, []string{"PATH=/"}, in, in
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: dir, Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		err = cmd.Start()
		_ = in.Close()
		if err == nil {
			_, _ = io.Copy(prefixed{s, args[0]}, out)
			err = cmd.Wait()
		}
		_ = out.Close()
		if err != nil {
			t.Errorf("engine %s: %v", args[0], err)
		}
	}
	wantTrained(t, filepath.Join(volume, "out"))
}
