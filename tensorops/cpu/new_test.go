package cpu_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cpu"
)

// What New refuses, it refuses with the numbers and with what there is instead.
func TestNewRefuses(t *testing.T) {
	type refusal struct {
		name    string
		options cpu.Options
		is      error // nil: no kind of its own
		says    []string
	}
	refusals := []refusal{
		{"threads below 0", cpu.Options{Threads: -1}, nil, []string{"-1 threads", "1 or more", "0 for all"}},
		{"threads far below 0", cpu.Options{Threads: -1 << 40, Kernels: "go"}, nil, []string{"-1099511627776 threads"}},
		{"unknown kernels", cpu.Options{Kernels: "mmx"}, cpu.ErrKernels, append([]string{`"mmx"`, "auto"}, cpu.Paths()...)},
		{"kernels in capitals", cpu.Options{Kernels: "GO"}, cpu.ErrKernels, []string{`"GO"`}},
		{"kernels that steer a terminal", cpu.Options{Kernels: "\x1b[2J"}, cpu.ErrKernels, []string{`"\x1b[2J"`}},
	}
	for _, p := range cpu.Explain() {
		if !p.Available {
			refusals = append(refusals, refusal{"lacks " + p.Name, cpu.Options{Kernels: p.Name}, cpu.ErrKernels,
				append([]string{`"` + p.Name + `"`}, cpu.Paths()...)})
		}
	}
	for _, c := range refusals {
		t.Run(c.name, func(t *testing.T) {
			d, err := cpu.New(c.options)
			if err == nil {
				d.Close()
				t.Fatal("made a device")
			}
			if d != nil || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("device %v, error %v, want none and %v", d, err, c.is)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q isn't in: %v", s, err)
				}
			}
		})
	}
}

// A device is what was asked for, and what was left open is the best there is.
func TestNew(t *testing.T) {
	for _, c := range []struct {
		options cpu.Options
		path    string
		threads int
	}{
		{cpu.Options{}, cpu.Paths()[0], runtime.GOMAXPROCS(0)},
		{cpu.Options{Kernels: "auto", Threads: 3}, cpu.Paths()[0], 3},
		{cpu.Options{Kernels: "go", Threads: 1, LimitBytes: 1 << 20}, "go", 1},
	} {
		t.Run(fmt.Sprintf("%+v", c.options), func(t *testing.T) {
			d, err := cpu.New(c.options)
			if err != nil {
				t.Fatal(err)
			}
			defer d.Close()
			if d.Name() != "cpu" || d.Path() != c.path || d.Threads() != c.threads {
				t.Errorf("%s with kernels %s on %d threads, want cpu, %s, %d", d.Name(), d.Path(), d.Threads(), c.path, c.threads)
			}
			if m := d.Memory(); m.Limit != c.options.LimitBytes || m.InUse != 0 {
				t.Errorf("memory %+v, want a limit of %d bytes and nothing in use", m, c.options.LimitBytes)
			}
			if fast := d.FastBF16(); fast != (c.path == "amx" || c.path == "avx512bf16") {
				t.Errorf("bfloat16 is faster: %v with kernels %s", fast, c.path)
			}
		})
	}
}

// Explain tells of every path what New does with it.
func TestExplain(t *testing.T) {
	var available []string
	infos := cpu.Explain()
	for _, p := range infos {
		d, err := cpu.New(cpu.Options{Threads: 1, Kernels: p.Name})
		if (err == nil) != p.Available {
			t.Errorf("%s is said to be available: %v; New: %v", p.Name, p.Available, err)
		}
		if err == nil {
			d.Close()
			available = append(available, p.Name)
		}
		if p.Why == "" || strings.Contains(p.Why, "does not support") == p.Available {
			t.Errorf("%s, available: %v: %q", p.Name, p.Available, p.Why)
		}
	}
	if got, want := strings.Join(available, " "), strings.Join(cpu.Paths(), " "); got != want {
		t.Errorf("available are %s, Paths says %s", got, want)
	}
	if last := infos[len(infos)-1]; last.Name != "go" || last.Why != "runs everywhere" {
		t.Errorf("the last path is %+v, want go, which runs everywhere", last)
	}
}

// A device that is closed closes the streams that were left open.
func TestCloseEndsStreams(t *testing.T) {
	d, err := cpu.New(cpu.Options{Threads: 2, Kernels: "go"})
	if err != nil {
		t.Fatal(err)
	}
	s := d.NewStream("left open")
	d.Close()
	done := make(chan error, 1)
	s.Submit(s.NewList(), func(err error) { done <- err })
	if err := <-done; !errors.Is(err, tensorops.ErrClosed) {
		t.Errorf("a list after Close: %v, want ErrClosed", err)
	}
}
