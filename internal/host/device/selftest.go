package device

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/troupe-ml/troupe/internal/base/clock"
	"github.com/troupe-ml/troupe/internal/optest"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// verdict is what a self-test of a GPU came to. It is kept in the user's folder for caches, by all
// that its outcome depends on: see identity.
type verdict struct {
	GPU     string    `json:"gpu"`
	Kernels string    `json:"kernels"` // the device's path
	Passed  bool      `json:"passed"`
	Why     string    `json:"why,omitempty"` // it did not
	Cases   int       `json:"cases"`
	Seconds float64   `json:"seconds"`
	When    time.Time `json:"when"`
}

// Inputs of the self-test. Tests replace them.
var (
	// SelfTestTime is how long a self-test starts new cases; it ends after the current case.
	SelfTestTime = 45 * time.Second
	// SelfTestCases limits the number of cases; 0: only the time limits them.
	SelfTestCases = 0
	// SelfTestPatience is how long it may take in all: the rest is for kernels to be compiled, and for
	// a GPU that does not answer to be given up.
	SelfTestPatience = 60 * time.Second
	// DriverFile tells the version of the system's driver, which CUDA's own says little about.
	DriverFile = "/proc/driver/nvidia/version"
)

// candidate is a GPU that a self-test may be made of.
type candidate struct {
	options cuda.Options
	found   cuda.Found
	folder  string // for verdicts; "": none can be kept
	key     string
}

// findCandidate looks for the first GPU. It makes no context, and fails where there is none.
func findCandidate() (candidate, error) {
	c := candidate{options: CUDAOptions()}
	all, err := cuda.Find(c.options)
	if err != nil {
		return c, err
	}
	c.found = all[0]
	c.options.Device = c.found.Ordinal
	if home, err := os.UserCacheDir(); err == nil {
		c.folder = filepath.Join(home, "troupe", "selftest")
	}
	c.key = c.identity()
	return c, nil
}

// identity is a hash of the GPU's name, of what its kernels are compiled for (which is its compute
// capability), of the versions of the driver and the libraries, and of this program: its file has
// the kernels, and what launches them.
func (c candidate) identity() string {
	h := sha256.New()
	is := cuda.Describe(c.options)
	fmt.Fprintf(h, "%s\n%s\n%v\n%v\n", c.found.Name, c.found.Path, is.Driver, is.NVRTC)
	for _, g := range is.Devices {
		fmt.Fprintf(h, "%s %d.%d\n", g.Name, g.Major, g.Minor)
	}
	if version, err := os.ReadFile(DriverFile); err == nil {
		_, _ = h.Write(version)
	}
	_, _ = h.Write(program())
	return hex.EncodeToString(h.Sum(nil))
}

// program is a hash of this program's file; without one, what it says of itself.
var program = sync.OnceValue(func() []byte {
	h := sha256.New()
	path, err := os.Executable()
	if err == nil {
		var f *os.File
		if f, err = os.Open(path); err == nil {
			defer f.Close() //nolint:errcheck // it was read
			_, err = io.Copy(h, f)
		}
	}
	if info, ok := debug.ReadBuildInfo(); err != nil && ok {
		h.Reset()
		_, _ = io.WriteString(h, info.String())
	}
	return h.Sum(nil)
})

func (c candidate) String() string {
	return fmt.Sprintf("cuda:%d (%s, %s kernels)", c.found.Ordinal, c.found.Name, c.found.Path)
}

// kept is the verdict of an earlier start, if there is one of this GPU with all that matters as it
// is now.
func (c candidate) kept() (v verdict, ok bool) {
	if c.folder == "" {
		return v, false
	}
	if text, err := os.ReadFile(c.file()); err == nil && json.Unmarshal(text, &v) == nil && v.Kernels == c.found.Path {
		return v, true
	}
	// A self-test that began and said nothing more has taken the program along, and would again.
	text, err := os.ReadFile(c.begun())
	if err != nil {
		return v, false
	}
	process, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return v, false
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d", process)); err == nil { // it is under way
		return v, false
	}
	return verdict{GPU: c.found.Name, Kernels: c.found.Path,
		Why: fmt.Sprintf("an earlier self-test did not finish (remove %s to test it again)", c.begun())}, true
}

func (c candidate) file() string  { return filepath.Join(c.folder, c.key+".json") }
func (c candidate) begun() string { return filepath.Join(c.folder, c.key+".begun") }

// keep stores a verdict. What goes wrong with that costs another self-test and is no error.
func (c candidate) keep(v verdict) {
	text, err := json.MarshalIndent(v, "", "\t")
	if err != nil || c.folder == "" {
		return
	}
	f, err := os.CreateTemp(c.folder, "new-*")
	if err != nil {
		return
	}
	_, err = f.Write(append(text, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), c.file())
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
}

// test makes the self-test and keeps what it came to, unless it was interrupted.
func (c candidate) test(ctx context.Context) verdict {
	v := verdict{GPU: c.found.Name, Kernels: c.found.Path, When: clock.Now().UTC().Truncate(time.Second)}
	if c.folder != "" && os.MkdirAll(c.folder, 0o700) == nil {
		_ = os.WriteFile(c.begun(), []byte(strconv.Itoa(os.Getpid())+"\n"), 0o600)
	}
	began := time.Now()
	tally, err := c.run(ctx)
	v.Seconds, v.Cases, v.Passed = time.Since(began).Seconds(), tally.Cases, err == nil
	if err != nil {
		v.Why = strings.Join(strings.Fields(err.Error()), " ") // in one line
	}
	if c.folder != "" {
		_ = os.Remove(c.begun()) // this process is alive
	}
	if err == nil || ctx.Err() == nil {
		c.keep(v)
	}
	return v
}

// run opens the GPU and holds it to the table of cases. It comes back in time also where the GPU
// does not: what waits for it is left behind then, and closes it if it ever answers.
func (c candidate) run(ctx context.Context) (optest.Tally, error) {
	type outcome struct {
		tally optest.Tally
		err   error
	}
	patience, done := context.WithTimeout(ctx, SelfTestPatience)
	defer done()
	ended := make(chan outcome, 1)
	go func() {
		var o outcome
		defer func() {
			if v := recover(); v != nil {
				o.err = fmt.Errorf("panic: %v", v)
			}
			ended <- o
		}()
		dev, err := cuda.New(c.options)
		if err != nil {
			o.err = err
			return
		}
		defer dev.Close()
		limited, stop := context.WithTimeout(patience, SelfTestTime)
		defer stop()
		o.tally, o.err = optest.Check(limited, dev, optest.Options{Skip: unoffered, Most: SelfTestCases})
	}()
	select {
	case o := <-ended:
		return o.tally, o.err
	case <-patience.Done():
		select { // a case that was under way ends soon
		case o := <-ended:
			return o.tally, o.err
		case <-time.After(SelfTestPatience / 12):
		}
		return optest.Tally{}, fmt.Errorf("it does not respond: %w", patience.Err())
	}
}

// unoffered are the cases of what "auto" computes on the CPU: contexts in parts.
func unoffered(c optest.Case) bool {
	return strings.Contains(c.Name, " whole") || strings.Contains(c.Name, " onto=") || strings.Contains(c.Name, " of=")
}
