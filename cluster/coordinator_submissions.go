package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/data"
)

// Submissions says what configurations of operators may make the coordinator do with its own rights.
type Submissions struct {
	// Env are the coordinator's own environment variables that ${NAME} may stand for. Others are the submitter's.
	Env []string
	// Roots are the folders that paths have to be in, also where links lead; nil: any. The coordinator's own folder never is.
	Roots []string
	// Collectors are what telemetry.otlp may name; nil: anything.
	Collectors []string
}

// ErrOutside: a configuration names a file that submissions may not use.
var ErrOutside = errors.New("outside of the folders that submissions may use")

// limitLinks bounds the entries of a folder that are looked at for links that lead elsewhere.
const limitLinks = 100_000

// parse reads a configuration that a client has sent, and refuses what it may not ask for. variables are the client's.
func (c *Coordinator) parse(file string, text []byte, sets, registered []string, variables map[string]string) (*config.Config, error) {
	cfg, err := parseSubmitted(file, text, sets, registered, c.cfg.Submissions.environment(variables))
	if err != nil {
		return nil, err
	}
	if err := c.cfg.Submissions.check(cfg, c.cfg.Dir); err != nil {
		return nil, &troupe.SetupError{Err: err}
	}
	return cfg, nil
}

// environment looks variables up: the coordinator's own that are allowed, else the submitter's.
func (s *Submissions) environment(variables map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		if slices.Contains(s.Env, name) {
			if v, set := os.LookupEnv(name); set {
				return v, true
			}
		}
		v, set := variables[name]
		return v, set
	}
}

// check refuses paths outside of the roots, and collectors that the coordinator was not started with.
func (s *Submissions) check(cfg *config.Config, own string) error {
	if at := cfg.Telemetry.OTLP; s.Collectors != nil && at != "" && !slices.Contains(s.Collectors, at) {
		return cfg.Errorf("telemetry.otlp", "this coordinator sends to no collector at %q; leave it out, or start the coordinator with --otlp %s",
			at, at)
	}
	roots, err := resolved(s.Roots)
	if err != nil {
		return err
	}
	deny, err := resolved([]string{own})
	if err != nil {
		return err
	}
	for _, p := range cfg.Paths() {
		if err := checkPath(*p.Value, roots, s.Roots == nil, deny); err != nil {
			hint := ""
			if s.Roots != nil && errors.Is(err, ErrOutside) {
				hint = fmt.Sprintf(" (%s); move it there, or start the coordinator with --root FOLDER", strings.Join(s.Roots, ", "))
			}
			return cfg.Errorf(p.Key, "%w%s", err, hint)
		}
	}
	return nil
}

// resolved are folders as links lead to them; those that are not there, as they are named.
func resolved(dirs []string) (all []string, err error) {
	for _, d := range dirs {
		if d == "" {
			continue
		}
		if d, err = filepath.Abs(d); err != nil {
			return nil, err
		}
		all = append(all, follow(d))
	}
	return all, nil
}

// follow is where a path leads: the links of as much of it as is there are followed.
func follow(path string) string {
	if at, err := filepath.EvalSymlinks(path); err == nil {
		return at
	}
	dir, name := filepath.Split(filepath.Clean(path))
	if dir = filepath.Clean(dir); dir == path || name == "" {
		return path
	}
	// A link that leads nowhere may lead somewhere when it is used.
	if to, err := os.Readlink(path); err == nil {
		if !filepath.IsAbs(to) {
			to = filepath.Join(follow(dir), to)
		}
		if to != path {
			return filepath.Clean(to)
		}
	}
	return filepath.Join(follow(dir), name)
}

// beneath reports whether a path is one of some folders, or in one.
func beneath(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool {
		rel, err := filepath.Rel(d, path)
		return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
	})
}

// checkPath refuses a path, or a pattern of paths, that leads out of the roots, or into a folder that nobody may use.
func checkPath(path string, roots []string, anywhere bool, deny []string) error {
	outside := fmt.Errorf("%q is %w", path, ErrOutside)
	if !anywhere && slices.Contains(strings.Split(filepath.ToSlash(path), "/"), "..") {
		// What it means depends on links, which the one who opens it follows.
		return fmt.Errorf("%q has .. in it, and may be %w", path, ErrOutside)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	allowed := func(path string) bool {
		at := follow(path)
		return (anywhere || beneath(at, roots)) && !beneath(at, deny)
	}
	if !allowed(abs) { // before anything is looked for there
		return outside
	}
	if err := checkLinks(follow(abs), roots, anywhere, deny, outside); err != nil {
		return err
	}
	if !strings.ContainsAny(abs, `*?[\`) {
		return nil
	}
	files, _ := data.Files([]string{abs}) // where it is wrong, whoever opens it says so
	for _, f := range files {
		if !allowed(f) {
			return outside
		}
	}
	return nil
}

// checkLinks refuses a folder with links in it that lead out of the roots.
func checkLinks(dir string, roots []string, anywhere bool, deny []string, outside error) error {
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return nil
	}
	left := limitLinks
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if left--; left < 0 {
			return fmt.Errorf("%s has more than %d files in it", dir, limitLinks)
		}
		switch {
		case err != nil:
			return nil // whoever opens it says so
		case d.IsDir() && path != dir && beneath(path, deny):
			return fs.SkipDir
		case d.Type()&fs.ModeSymlink != 0:
			if at := follow(path); !anywhere && !beneath(at, roots) || beneath(at, deny) {
				return outside
			}
		}
		return nil
	})
}

// lease is for how long a run's workers keep its ranks without a coordinator: as its configuration says, else as the
// coordinator was started with. One that does not outlast the coordinator's silence is refused: a worker would give its
// ranks up before the coordinator takes it for lost.
func (c *Coordinator) lease(cfg *config.Config) error {
	key := "cluster.lease_s"
	if !cfg.IsSet(key) {
		cfg.Cluster.LeaseS = c.cfg.Lease.Seconds()
	}
	if lease, silence := cfg.Cluster.LeaseS, c.cfg.Silence.Seconds(); lease <= silence {
		if !cfg.IsSet(key) {
			return fmt.Errorf("%w: its lease of %g s must be longer than its silence of %g s; start it with a longer --lease-s", ErrRequest, lease,
				silence)
		}
		return cfg.Errorf(key, "%g s must be longer than the silence of this coordinator, %g s (--silence-s); raise it, or leave it out", lease,
			silence)
	}
	return nil
}
