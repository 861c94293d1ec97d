package troupe

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/tensorops"
)

// devices are what the ranks of a run compute on. Ranks of one kind share a device, on
// which each has a stream.
type devices struct {
	kinds  []string // in the order of their first ranks
	opened []Device // of these kinds
	ranks  []int    // of each rank, the place in opened
}

// openDevices makes the devices that a configuration's ranks ask for.
func openDevices(cfg *config.Config) (*devices, error) {
	d := &devices{}
	for r := range cfg.Pipeline.Stages {
		kind := kindOf(cfg, r)
		i := slices.Index(d.kinds, kind)
		if i < 0 {
			one, err := openKind(cfg, kind)
			if err != nil {
				d.close()
				return nil, err
			}
			i = len(d.opened)
			d.kinds, d.opened = append(d.kinds, kind), append(d.opened, one)
		}
		d.ranks = append(d.ranks, i)
	}
	return d, nil
}

func (d *devices) close() {
	for _, one := range d.opened {
		one.Close()
	}
}

// ofRanks lists the device of each rank.
func (d *devices) ofRanks() []tensorops.Device {
	all := make([]tensorops.Device, len(d.ranks))
	for r, i := range d.ranks {
		all[r] = d.opened[i]
	}
	return all
}

// onGPU is the memory that tensors may take on the GPU; 0: there is none, or it is not known.
func (d *devices) onGPU() int64 {
	if i := slices.Index(d.kinds, kindCUDA); i >= 0 {
		return memoryFor(d.opened[i])
	}
	return 0
}

// memory is the tensor memory in use on the device of a kind.
func (d *devices) memory(kind string) tensorops.MemoryStats {
	for _, one := range d.opened {
		if one.Name() == kind {
			return one.Memory()
		}
	}
	return tensorops.MemoryStats{}
}

// threads is how many actions, or parts of one, the devices compute at a time: a GPU
// beside the CPU adds none, its kernels being launched one after the other.
func (d *devices) threads() int {
	most := 1
	for _, one := range d.opened {
		most = max(most, one.Threads())
	}
	return most
}

// names are those of the devices, such as "cuda, cpu".
func (d *devices) names() string {
	var names []string
	for _, one := range d.opened {
		names = append(names, one.Name())
	}
	return strings.Join(names, ", ")
}

// path names the kernels in use; of several devices those of each, with its ranks:
// "cuda-sm_90 (rank 0), cpu-avx2 (rank 1)".
func (d *devices) path() string {
	if len(d.opened) == 1 {
		return d.opened[0].Path()
	}
	var paths []string
	for i, one := range d.opened {
		path := one.Path()
		if !strings.HasPrefix(path, one.Name()) {
			path = one.Name() + "-" + path
		}
		paths = append(paths, fmt.Sprintf("%s (%s)", path, rankList(d.ranks, i)))
	}
	return strings.Join(paths, ", ")
}

// rankList names the ranks that are at a place, such as "ranks 0, 2-5".
func rankList(ranks []int, place int) string {
	var spans []string
	n := 0
	for first := 0; first < len(ranks); first++ {
		if ranks[first] != place {
			continue
		}
		last := first
		for last+1 < len(ranks) && ranks[last+1] == place {
			last++
		}
		n += last - first + 1
		span := strconv.Itoa(first)
		if last > first {
			span += "-" + strconv.Itoa(last)
		}
		spans = append(spans, span)
		first = last
	}
	word := "ranks "
	if n == 1 {
		word = "rank "
	}
	return word + strings.Join(spans, ", ")
}
