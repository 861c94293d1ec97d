package sysinfo

import (
	"bufio"
	"os"
	"strconv"
	"strings"
)

// groups are the control groups that bound this process.
func groups() []group {
	text, _ := os.ReadFile("/proc/self/cgroup") // without it, those of a container
	return groupsOf(string(text))
}

// MemoryBytes is the memory that this process may still take: what the system
// has available, or what the limits of its control groups leave if that is lower. 0 where it
// cannot be told.
func MemoryBytes() int64 {
	avail := meminfo("MemAvailable:")
	for _, g := range groups() {
		if left, ok := g.left(); ok && (avail == 0 || left < avail) {
			avail = left
		}
	}
	return avail
}

// TotalBytes is the memory that this process may have in all: the machine's, or
// its control group's limit if that is lower. 0 where it cannot be told.
func TotalBytes() int64 {
	total := meminfo("MemTotal:")
	for _, g := range groups() {
		if limit, ok := number(g.limit); ok && (total == 0 || limit < total) {
			total = limit
		}
	}
	return total
}

// ResidentBytes is the memory that this process holds now; 0 where it cannot be
// told.
func ResidentBytes() int64 { return kibLine("/proc/self/status", "VmRSS:") }

// PeakBytes is the most memory that this process has held; 0 where it cannot be told.
// getrusage would be shorter, but its figure includes what the parent had before it
// started this program.
func PeakBytes() int64 { return kibLine("/proc/self/status", "VmHWM:") }

// MachineBytes is the machine's memory with its swap space; 0 where it cannot be told.
func MachineBytes() int64 { return meminfo("MemTotal:") + meminfo("SwapTotal:") }

// meminfo reads a line of /proc/meminfo, in bytes.
func meminfo(key string) int64 { return kibLine("/proc/meminfo", key) }

// kibLine finds the line of a key in a file and reads its number of KiB, in bytes.
func kibLine(path, key string) int64 { return field(path, key) * 1024 }

// field finds the line of a key in a file and reads its number; 0: there is none.
func field(path, key string) int64 {
	f, err := os.Open(path)
	if err != nil {
		return 0
	}
	defer f.Close() //nolint:errcheck // nothing was written
	for s := bufio.NewScanner(f); s.Scan(); {
		fields := strings.Fields(s.Text())
		if len(fields) >= 2 && fields[0] == key {
			n, _ := strconv.ParseInt(fields[1], 10, 64)
			return n
		}
	}
	return 0
}

// number reads a file that holds one number; "max" means there is none.
func number(path string) (int64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil && n > 0
}
