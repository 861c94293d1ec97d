package sysinfo

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// Cache is one cache as the first core sees it.
type Cache struct {
	Level  int    `json:"level"`
	Type   string `json:"type"` // "data", "instruction" or "unified"
	Bytes  int64  `json:"bytes"`
	Shared string `json:"shared"` // the cores that share it, as Linux lists them: "0-1"
}

// ProcessorName is what the processor calls itself.
func ProcessorName() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close() //nolint:errcheck // nothing was written
	return modelName(f)
}

// modelName finds the name of the first processor in the text of /proc/cpuinfo.
func modelName(r io.Reader) string {
	for s := bufio.NewScanner(r); s.Scan(); {
		key, value, ok := strings.Cut(s.Text(), ":")
		if ok && strings.TrimSpace(key) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Caches are those of the first core, the nearest first.
func Caches() []Cache { return caches(os.DirFS("/sys/devices/system/cpu/cpu0/cache")) }

// caches reads the folder in which Linux describes a core's caches.
func caches(dir fs.FS) []Cache {
	names, err := fs.Glob(dir, "index*")
	if err != nil {
		return nil
	}
	var all []Cache
	for _, name := range names {
		text := func(key string) string {
			b, err := fs.ReadFile(dir, name+"/"+key)
			if err != nil {
				return ""
			}
			return strings.TrimSpace(string(b))
		}
		level, err := strconv.Atoi(text("level"))
		bytes, ok := size(text("size"))
		if err != nil || !ok {
			continue
		}
		all = append(all, Cache{level, strings.ToLower(text("type")), bytes, text("shared_cpu_list")})
	}
	slices.SortStableFunc(all, func(a, b Cache) int { return cmp.Compare(a.Level, b.Level) })
	return all
}

// size reads a number of bytes such as "32K".
func size(text string) (int64, bool) {
	var n int64
	var unit string
	if _, err := fmt.Sscanf(text, "%d%s", &n, &unit); err != nil {
		return 0, false
	}
	shift, ok := map[string]int{"K": 10, "M": 20, "G": 30}[unit]
	return n << shift, ok && n > 0 && n < 1<<32
}
