package sysinfo

import (
	"path"
	"slices"
	"strings"
)

// group is a control group that bounds the memory of this process: the files of its limit and its use, and that of its
// statistics with the key of the pages that the system drops first.
type group struct{ limit, used, stat, cached string }

const groupsRoot = "/sys/fs/cgroup"

// groupsOf returns the control groups that /proc/self/cgroup names and all groups around them, which bound the process, too.
// A container may show only its own group, at the root.
func groupsOf(text string) (all []group) {
	add := func(dir string, version int) {
		g := group{dir + "/memory.max", dir + "/memory.current", dir + "/memory.stat", "inactive_file"}
		if version == 1 {
			g = group{dir + "/memory.limit_in_bytes", dir + "/memory.usage_in_bytes", dir + "/memory.stat", "total_inactive_file"}
		}
		if !slices.Contains(all, g) {
			all = append(all, g)
		}
	}
	lines := strings.Split(text, "\n")
	for _, line := range append(lines, "0::/", "1:memory:/") {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) < 3 {
			continue
		}
		root, version := groupsRoot, 2
		if parts[1] != "" {
			if root, version = groupsRoot+"/memory", 1; !slices.Contains(strings.Split(parts[1], ","), "memory") {
				continue
			}
		}
		for at := path.Clean("/" + parts[2]); ; at = path.Dir(at) {
			add(path.Clean(root+at), version)
			if at == "/" {
				break
			}
		}
	}
	return all
}

// left is how much of the group's limit is not used; false: it has no limit. Pages of files that were not used lately count
// as free: the system drops them before it refuses memory.
func (g group) left() (int64, bool) {
	limit, ok := number(g.limit)
	if !ok {
		return 0, false
	}
	used, _ := number(g.used)
	return max(limit-max(used-field(g.stat, g.cached), 0), 1), true
}
