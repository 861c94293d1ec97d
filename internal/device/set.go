package device

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/tensorops"
	"github.com/troupe-ml/troupe/tensorops/cuda"
)

// Set is what the ranks of a run compute on. Ranks of one kind share a device, on
// which each has a stream.
type Set struct {
	kinds  []place  // in the order of their first ranks
	opened []Device // of these kinds
	ranks  []int    // of each rank, the place in opened; elsewhere: in another process
}

// place is a device of this process.
type place struct {
	kind    string
	ordinal int // of a GPU
}

// elsewhere stands for the device of a rank that is in another process.
const elsewhere = -1

// OpenSet makes the devices that a configuration's ranks ask for.
func OpenSet(cfg *config.Config) (*Set, error) {
	at := make(map[int]int)
	for r := range cfg.Ranks() {
		at[r] = 0
	}
	return OpenSetAt(cfg, at)
}

// OpenSetAt makes the devices of those ranks of a configuration that this process computes:
// ordinals says of each which GPU it is on, where it is on one.
func OpenSetAt(cfg *config.Config, ordinals map[int]int) (*Set, error) {
	d := &Set{}
	for r := range cfg.Ranks() {
		ordinal, here := ordinals[r]
		if !here {
			d.ranks = append(d.ranks, elsewhere)
			continue
		}
		p := place{KindOf(cfg, cfg.StageOf(r)), ordinal}
		if p.kind != CUDA {
			p.ordinal = 0
		}
		i := slices.Index(d.kinds, p)
		if i < 0 {
			one, err := openKind(cfg, p.kind, p.ordinal)
			if err != nil {
				d.Close()
				return nil, err
			}
			i = len(d.opened)
			d.kinds, d.opened = append(d.kinds, p), append(d.opened, one)
		}
		d.ranks = append(d.ranks, i)
	}
	return d, nil
}

// Close ends the devices.
func (d *Set) Close() {
	for _, one := range d.opened {
		one.Close()
	}
}

// Opened lists the devices, in the order of their first ranks.
func (d *Set) Opened() []Device { return d.opened }

// OfRanks lists the device of each rank; nil: it is in another process.
func (d *Set) OfRanks() []tensorops.Device {
	all := make([]tensorops.Device, len(d.ranks))
	for r, i := range d.ranks {
		if i != elsewhere {
			all[r] = d.opened[i]
		}
	}
	return all
}

// OnGPU is the memory that tensors may take on the GPU; 0: there is none, or it is not known.
func (d *Set) OnGPU() int64 {
	if i := slices.IndexFunc(d.kinds, func(p place) bool { return p.kind == CUDA }); i >= 0 {
		return FreeBytes(d.opened[i])
	}
	return 0
}

// GPUPath names the kernels of the first GPU; "": there is none.
func (d *Set) GPUPath() string {
	if i := slices.IndexFunc(d.kinds, func(p place) bool { return p.kind == CUDA }); i >= 0 {
		return d.opened[i].Path()
	}
	return ""
}

// OnWarning has a function told of what goes on in another way on a GPU than was meant.
func (d *Set) OnWarning(warn func(text string)) {
	for _, one := range d.opened {
		if g, ok := one.(gpu); ok {
			g.OnWarning(warn)
		}
	}
}

// Work tells what the GPUs of this process have put into their streams, and how, in the order
// of their first ranks.
func (d *Set) Work() (all []cuda.Work) {
	for _, one := range d.opened {
		if w, ok := Work(one); ok {
			all = append(all, w)
		}
	}
	return all
}

// Memory is the tensor memory in use on the device of a kind.
func (d *Set) Memory(kind string) tensorops.MemoryStats {
	for _, one := range d.opened {
		if one.Name() == kind {
			return one.Memory()
		}
	}
	return tensorops.MemoryStats{}
}

// TakenBy is the most tensor memory that streams of each name have taken at a time.
func (d *Set) TakenBy() map[string]int64 {
	all := make(map[string]int64)
	for _, one := range d.opened {
		maps.Copy(all, one.TakenBy())
	}
	return all
}

// Threads is how many actions, or parts of one, the devices compute at a time: a GPU
// beside the CPU adds none, its kernels being launched one after the other.
func (d *Set) Threads() int {
	most := 1
	for _, one := range d.opened {
		most = max(most, one.Threads())
	}
	return most
}

// Names are those of the devices, such as "cuda, cpu".
func (d *Set) Names() string {
	var names []string
	for _, one := range d.opened {
		names = append(names, one.Name())
	}
	return strings.Join(names, ", ")
}

// Path names the kernels in use; of several devices those of each, with its ranks:
// "cuda-sm_90 (rank 0), cpu-avx2 (rank 1)".
func (d *Set) Path() string {
	if len(d.opened) == 1 {
		return d.opened[0].Path()
	}
	var paths []string
	for i, one := range d.opened {
		paths = append(paths, pathOf(one.Name(), one.Path(), d.ranks, i))
	}
	return strings.Join(paths, ", ")
}

// pathOf names the kernels of the ranks at a place.
func pathOf(kind, path string, ranks []int, place int) string {
	if !strings.HasPrefix(path, kind) {
		path = kind + "-" + path
	}
	return fmt.Sprintf("%s (%s)", path, rankList(ranks, place))
}

// PathOf names the kernels of a run whose ranks are in other processes, as Set.Path does of
// one that has the devices: paths are those of each kind.
func PathOf(cfg *config.Config, paths map[string]string) string {
	var kinds []string
	var ranks []int
	for r := range cfg.Ranks() {
		kind := KindOf(cfg, cfg.StageOf(r))
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
		ranks = append(ranks, slices.Index(kinds, kind))
	}
	if len(kinds) == 1 {
		return paths[kinds[0]]
	}
	var all []string
	for i, kind := range kinds {
		all = append(all, pathOf(kind, paths[kind], ranks, i))
	}
	return strings.Join(all, ", ")
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
