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

// Set has the devices of a run's ranks. Ranks of one device share it; each has its own stream.
type Set struct {
	places []place  // in the order of their first ranks
	opened []Device // at these places
	ranks  []int    // of each rank, the place in opened; elsewhere: in another process
}

// place is a device of this process.
type place struct {
	kind    string
	ordinal int // of a GPU
}

// elsewhere stands for the device of a rank that is in another process.
const elsewhere = -1

// OpenSet opens the devices of a configuration's ranks.
func OpenSet(cfg *config.Config) (*Set, error) {
	at, err := spread(cfg)
	if err != nil {
		return nil, err
	}
	return OpenSetAt(cfg, at)
}

// OpenSetAt opens the devices of the ranks that this process computes. ordinals maps each of them to the ordinal of its GPU, if it
// is on one.
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
		i := slices.Index(d.places, p)
		if i < 0 {
			one, err := openKind(cfg, p.kind, p.ordinal)
			if err != nil {
				d.Close()
				return nil, err
			}
			i = len(d.opened)
			d.places, d.opened = append(d.places, p), append(d.opened, one)
		}
		d.ranks = append(d.ranks, i)
	}
	return d, nil
}

// Include gives more ranks of this process the device of those that are on the CPU. Ranks that have a device keep it.
func (d *Set) Include(cfg *config.Config, ranks []int) error {
	for _, r := range ranks {
		if r < 0 || r >= len(d.ranks) {
			return fmt.Errorf("rank %d of %d does not exist", r, len(d.ranks))
		}
		if d.ranks[r] != elsewhere {
			continue
		}
		i := slices.Index(d.places, place{KindOf(cfg, cfg.StageOf(r)), 0})
		if i < 0 || d.places[i].kind == CUDA {
			return fmt.Errorf("rank %d cannot be added to the devices of a process that has no rank on the CPU, or to a GPU", r)
		}
		d.ranks[r] = i
	}
	return nil
}

// Close closes the devices.
func (d *Set) Close() {
	for _, one := range d.opened {
		one.Close()
	}
}

// Opened lists the devices, in the order of their first ranks.
func (d *Set) Opened() []Device { return d.opened }

// OfRanks lists the device of each rank; nil: the rank is in another process.
func (d *Set) OfRanks() []tensorops.Device {
	all := make([]tensorops.Device, len(d.ranks))
	for r, i := range d.ranks {
		if i != elsewhere {
			all[r] = d.opened[i]
		}
	}
	return all
}

// GPU is a GPU that ranks compute on.
type GPU struct {
	Name      string // such as "cuda:1"
	Ranks     []int
	FreeBytes int64 // that tensors may take; 0: not known
}

// GPUPath returns the kernel path of the first GPU; "": there is none.
func (d *Set) GPUPath() string {
	if i := slices.IndexFunc(d.places, func(p place) bool { return p.kind == CUDA }); i >= 0 {
		return d.opened[i].Path()
	}
	return ""
}

// OnWarning sets the function that receives warnings about work that a GPU does differently than planned.
func (d *Set) OnWarning(warn func(text string)) {
	for _, one := range d.opened {
		if g, ok := one.(gpu); ok {
			g.OnWarning(warn)
		}
	}
}

// Work returns the counts of work of this process's GPUs, in the order of their first ranks.
func (d *Set) Work() (all []cuda.Work) {
	for _, one := range d.opened {
		if w, ok := Work(one); ok {
			all = append(all, w)
		}
	}
	return all
}

// GPUs lists the GPUs of this process.
func (d *Set) GPUs() (all []GPU) {
	for i, p := range d.places {
		if p.kind != CUDA {
			continue
		}
		g := GPU{Name: p.String(), FreeBytes: FreeBytes(d.opened[i])}
		for r, at := range d.ranks {
			if at == i {
				g.Ranks = append(g.Ranks, r)
			}
		}
		all = append(all, g)
	}
	return all
}

func (p place) String() string {
	if p.kind != CUDA {
		return p.kind
	}
	return fmt.Sprintf("%s:%d", p.kind, p.ordinal)
}

// Apart lists the pairs of GPUs without access to each other's memory, such as "cuda:0 and cuda:1". Tensors between them pass
// through host memory.
func (d *Set) Apart() (pairs []string) {
	for i, one := range d.opened {
		for j, other := range d.opened[:i] {
			a, isPeer := one.(tensorops.Peer)
			b, arePeers := other.(tensorops.Peer)
			if isPeer && arePeers && (!a.CopiesFrom(other) || !b.CopiesFrom(one)) {
				pairs = append(pairs, fmt.Sprintf("%v and %v", d.places[j], d.places[i]))
			}
		}
	}
	return pairs
}

// Memory returns the sum of the tensor memory in use on the devices of a kind.
func (d *Set) Memory(kind string) (sum tensorops.MemoryStats) {
	for _, one := range d.opened {
		if one.Name() == kind {
			m := one.Memory()
			sum.InUse, sum.Pooled, sum.Peak, sum.Taken, sum.Limit = sum.InUse+m.InUse, sum.Pooled+m.Pooled, sum.Peak+m.Peak, sum.Taken+m.Taken,
				sum.Limit+m.Limit
		}
	}
	return sum
}

// TakenBy returns the peak tensor memory of the streams of each name.
func (d *Set) TakenBy() map[string]int64 {
	all := make(map[string]int64)
	for _, one := range d.opened {
		maps.Copy(all, one.TakenBy())
	}
	return all
}

// Threads returns how many actions, or parts of one, the devices compute at a time. A GPU beside the CPU adds none, since its
// kernels are launched one after the other.
func (d *Set) Threads() int {
	most := 1
	for _, one := range d.opened {
		most = max(most, one.Threads())
	}
	return most
}

// Names lists the devices' names, such as "cuda, cpu"; several GPUs have numbers, such as "cuda:0, cuda:1".
func (d *Set) Names() string {
	gpus, first := 0, true // of the machine's
	for _, p := range d.places {
		if p.kind == CUDA {
			gpus++
			first = first && p.ordinal == 0
		}
	}
	var names []string
	for _, p := range d.places {
		if name := p.kind; gpus == 1 && first {
			names = append(names, name)
		} else {
			names = append(names, p.String())
		}
	}
	return strings.Join(names, ", ")
}

// Path returns the kernel path in use. If there are several, each has its ranks: "cuda-sm_90 (rank 0), cpu-avx2 (rank 1)". GPUs
// of one kind have the same path.
func (d *Set) Path() string {
	type kernels struct{ kind, path string }
	var all []kernels
	of := make([]int, len(d.opened)) // of each device, the place in all
	for i, one := range d.opened {
		k := kernels{one.Name(), one.Path()}
		if of[i] = slices.Index(all, k); of[i] < 0 {
			of[i] = len(all)
			all = append(all, k)
		}
	}
	if len(all) == 1 {
		return all[0].path
	}
	ranks := make([]int, len(d.ranks))
	for r, i := range d.ranks {
		ranks[r] = elsewhere
		if i != elsewhere {
			ranks[r] = of[i]
		}
	}
	var paths []string
	for i, k := range all {
		paths = append(paths, pathOf(k.kind, k.path, ranks, i))
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

// PathOf returns the kernel paths of a run whose ranks are in other processes, in the form of Set.Path. paths has the path of each
// kind of device.
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
