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

// Submissions limits what submitted configs may name, because the coordinator evaluates them with its own rights.
type Submissions struct {
	// Env lists the coordinator's environment variables that ${NAME} may use. Other variables are the submitting client's.
	Env []string
	// Roots lists the folders that paths must stay in after links are followed; nil: any folder. Paths into the coordinator's
	// own folder are never allowed.
	Roots []string
	// Collectors lists the values that telemetry.otlp may have; nil: any.
	Collectors []string
}

// ErrOutside: a submitted config names a path that submissions may not use.
var ErrOutside = errors.New("outside the folders that submissions may use")

// limitLinks bounds the entries of a folder that are checked for links that lead out of it.
const limitLinks = 100_000

// parse parses a config from a client, and refuses what submissions may not name. variables are from the client's
// environment.
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

// environment looks up a variable: the coordinator's own if it is allowed, else the client's.
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

// check refuses paths outside the roots, and collectors that the coordinator was not started with.
func (s *Submissions) check(cfg *config.Config, own string) error {
	if at := cfg.Telemetry.OTLP; s.Collectors != nil && at != "" && !slices.Contains(s.Collectors, at) {
		return cfg.Errorf("telemetry.otlp",
			"this coordinator may not send to the collector %q; leave the key out, or start the coordinator with --otlp %s",
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
				hint = fmt.Sprintf(" (%s); move the file there, or start the coordinator with --root FOLDER", strings.Join(s.Roots, ", "))
			}
			return cfg.Errorf(p.Key, "%w%s", err, hint)
		}
	}
	return nil
}

// resolved returns folders with their links followed. Folders that don't exist stay as named.
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

// follow returns where a path leads: it follows the links in the part of the path that exists.
func follow(path string) string {
	if at, err := filepath.EvalSymlinks(path); err == nil {
		return at
	}
	dir, name := filepath.Split(filepath.Clean(path))
	if dir = filepath.Clean(dir); dir == path || name == "" {
		return path
	}
	// The target of a dangling link may exist when the link is used.
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

// beneath reports whether a path is one of the folders or in one.
func beneath(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool {
		rel, err := filepath.Rel(d, path)
		return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
	})
}

// checkPath refuses a path, or a pattern of paths, that leads out of the roots or into a denied folder.
func checkPath(path string, roots []string, anywhere bool, deny []string) error {
	outside := fmt.Errorf("%q is %w", path, ErrOutside)
	if !anywhere && slices.Contains(strings.Split(filepath.ToSlash(path), "/"), "..") {
		// Its meaning depends on links, which are followed when the path is opened.
		return fmt.Errorf("%q contains .. and may be %w", path, ErrOutside)
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	allowed := func(path string) bool {
		at := follow(path)
		return (anywhere || beneath(at, roots)) && !beneath(at, deny)
	}
	if !allowed(abs) { // before anything is opened there
		return outside
	}
	if err := checkLinks(follow(abs), roots, anywhere, deny, outside); err != nil {
		return err
	}
	if !strings.ContainsAny(abs, `*?[\`) {
		return nil
	}
	files, _ := data.Files([]string{abs}) // an invalid pattern is reported when it is used
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
			return fmt.Errorf("%s has more than %d files, the limit for submissions", dir, limitLinks)
		}
		switch {
		case err != nil:
			return nil // reported when it is opened
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

// lease sets how long a run's workers keep their ranks without a coordinator: the config's cluster.lease_s, or else the
// coordinator's own lease. It refuses a lease that is not longer than the coordinator's silence: a worker would release
// its ranks before the coordinator counts it as failed.
func (c *Coordinator) lease(cfg *config.Config) error {
	key := "cluster.lease_s"
	if !cfg.IsSet(key) {
		cfg.Cluster.LeaseS = c.cfg.Lease.Seconds()
	}
	if lease, silence := cfg.Cluster.LeaseS, c.cfg.Silence.Seconds(); lease <= silence {
		if !cfg.IsSet(key) {
			return fmt.Errorf("%w: its lease of %g s must be longer than its silence of %g s; start the coordinator with a longer --lease-s",
				ErrRequest, lease,
				silence)
		}
		return cfg.Errorf(key, "%g s must be longer than this coordinator's silence of %g s (--silence-s); raise it, or leave the key out", lease,
			silence)
	}
	return nil
}
