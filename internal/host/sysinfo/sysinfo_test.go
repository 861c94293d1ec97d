package sysinfo

import (
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"
)

func TestCaches(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s + "\n")} }
	got := caches(fstest.MapFS{
		"index0/level": file("2"), "index0/type": file("Unified"), "index0/size": file("512K"), "index0/shared_cpu_list": file("0"),
		"index1/level": file("1"), "index1/type": file("Data"), "index1/size": file("32K"), "index1/shared_cpu_list": file("0"),
		"index2/level": file("3"), "index2/type": file("Unified"), "index2/size": file("32M"), "index2/shared_cpu_list": file("0-7"),
		"index3/level": file("4"), "index3/type": file("Unified"), "index3/size": file("much"),
		"index4/size": file("1K"),
		"uevent":      file(""),
	})
	want := []Cache{{1, "data", 32 << 10, "0"}, {2, "unified", 512 << 10, "0"}, {3, "unified", 32 << 20, "0-7"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]int64{"32K": 32 << 10, "1M": 1 << 20, "": 0, "K": 0, "7": 0, "-1K": 0, "5X": 0, "99999999999G": 0} {
		n, ok := size(text)
		if ok != (want > 0) || ok && n != want {
			t.Errorf("size(%q) = %d, %v, want %d", text, n, ok, want)
		}
	}
}

func TestModelName(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"processor\t: 0\nmodel\t\t: 1\nmodel name\t: A: B 7\nprocessor\t: 1\nmodel name\t: C\n", "A: B 7"},
		{"Hardware : x\n", ""},
		{"", ""},
	} {
		if got := modelName(strings.NewReader(c.text)); got != c.want {
			t.Errorf("modelName(%q) = %q, want %q", c.text, got, c.want)
		}
	}
}

// What this process has spent on cores grows with its work.
func TestCPUTime(t *testing.T) {
	began := CPUTime()
	if began == 0 {
		t.Skip("this system does not tell")
	}
	for deadline := time.Now().Add(time.Minute); CPUTime() == began; {
		if time.Now().After(deadline) {
			t.Fatal("a minute of work took none")
		}
	}
}

// On Linux everything about memory can be told, and fits together.
func TestMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("memory is read from /proc")
	}
	total, free, held, machine := TotalBytes(), MemoryBytes(), ResidentBytes(), MachineBytes()
	if total <= 0 || free <= 0 || held <= 0 || free > total || held > total || machine < total {
		t.Errorf("total %d, available %d, resident %d", total, free, held)
	}
}

func TestPeakBytes(t *testing.T) {
	if runtime.GOOS != "linux" {
		if got := PeakBytes(); got != 0 {
			t.Errorf("%d bytes, want 0 where it is unknown", got)
		}
		return
	}
	const size = 64 << 20
	block := make([]byte, size)
	for i := 0; i < size; i += 4096 {
		block[i] = 1
	}
	if got := PeakBytes(); got < size || got > 1<<40 {
		t.Errorf("%d bytes, with %d in use", got, size)
	}
	runtime.KeepAlive(block)
}

// TestGroups: the groups of a process and all around them bound it, and so does the one at the root of a container.
func TestGroups(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		want       []string
	}{
		{"version 2", "0::/system.slice/a.service\n", []string{"/sys/fs/cgroup/system.slice/a.service/memory.max",
			"/sys/fs/cgroup/system.slice/memory.max", "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}},
		{"version 1", "5:devices:/x\n4:cpu,memory:/job\n0::/\n", []string{"/sys/fs/cgroup/memory/job/memory.limit_in_bytes",
			"/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"}},
		{"outside of the mount", "0::/../../other\n", []string{"/sys/fs/cgroup/other/memory.max", "/sys/fs/cgroup/memory.max",
			"/sys/fs/cgroup/memory/memory.limit_in_bytes"}},
		{"no file", "", []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"}},
	} {
		var got []string
		for _, g := range groupsOf(tt.text) {
			got = append(got, g.limit)
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// TestLeft: what a group may still take, without the pages of files that the system can drop.
func TestLeft(t *testing.T) {
	for _, tt := range []struct {
		limit, used, stat string
		want              int64
		ok                bool
	}{
		{"1000", "300", "anon 100\ninactive_file 200\n", 900, true},
		{"1000", "300", "", 700, true},
		{"1000", "1200", "", 1, true},
		{"1000", "100", "inactive_file 200\n", 1000, true},
		{"max", "300", "", 0, false},
		{"", "", "", 0, false},
	} {
		dir := t.TempDir()
		g := group{dir + "/max", dir + "/current", dir + "/stat", "inactive_file"}
		for path, text := range map[string]string{g.limit: tt.limit, g.used: tt.used, g.stat: tt.stat} {
			if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, ok := g.left(); got != tt.want || ok != tt.ok {
			t.Errorf("%+v: %d, %v", tt, got, ok)
		}
	}
}
