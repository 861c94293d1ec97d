package cluster

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/troupe-ml/troupe/cluster/internal/arrange"
	"github.com/troupe-ml/troupe/config"
	"github.com/troupe-ml/troupe/internal/host/device"
	"github.com/troupe-ml/troupe/internal/plan"
	"github.com/troupe-ml/troupe/internal/wire"
)

// gpus returns the offered GPUs with the same kernels as the first. Others would give different bits.
func gpus(o *wire.Offer) []*wire.OfferedDevice {
	var all []*wire.OfferedDevice
	for _, d := range o.GetDevices()[:min(len(o.GetDevices()), limitDevices)] {
		if d.GetKind() == device.CUDA && (len(all) == 0 || d.GetKernels() == all[0].GetKernels()) {
			all = append(all, d)
		}
	}
	return all
}

// kindsOf reports which kinds of devices the config's ranks need.
func kindsOf(cfg *config.Config) (cpu, gpu bool) {
	for r := range cfg.Ranks() {
		if device.KindOf(cfg, cfg.StageOf(r)) == device.CUDA {
			gpu = true
		} else {
			cpu = true
		}
	}
	return cpu, gpu
}

// withGPUs returns the workers that have a GPU.
func withGPUs(all []*workerState) []*workerState {
	var some []*workerState
	for _, w := range all {
		if len(gpus(w.Offer)) > 0 {
			some = append(some, w)
		}
	}
	return some
}

// sameKernels refuses workers whose kernels give different bits. chosen must not be empty.
func sameKernels(cfg *config.Config, chosen []*workerState) error {
	cpu, gpu := kindsOf(cfg)
	first := chosen[0]
	for _, w := range chosen[1:] {
		if was, is := first.Offer.GetKernels(), w.Offer.GetKernels(); cpu && was != is && cfg.Device.Kernels == "auto" {
			return cfg.Errorf("device.kernels",
				"worker %s has %s kernels, but worker %s has %s: bits would depend on the placement; name kernels that both have", first.Name, was,
				w.Name, is)
		}
		if !gpu {
			continue
		}
		if was, is := gpus(first.Offer)[0].GetKernels(), gpus(w.Offer)[0].GetKernels(); was != is {
			return cfg.Errorf("device.kind",
				"the GPU of worker %s has %s kernels, but that of worker %s has %s: bits would depend on the placement; name workers of one kind in cluster.place",
				first.Name, was, w.Name, is)
		}
	}
	return nil
}

// kernelsOf returns the path of the kernels for each kind of device.
func kernelsOf(cfg *config.Config, o *wire.Offer) map[string]string {
	paths := map[string]string{device.CPU: o.GetKernels()}
	if g := gpus(o); len(g) > 0 {
		paths[device.CUDA] = device.WithTF32(g[0].GetKernels(), cfg.Device.TF32)
	}
	return paths
}

// slot is one GPU of a share.
type slot struct {
	share  *share
	device *wire.OfferedDevice
}

// slots returns GPUs for a run's ranks, those of a share next to each other: one for each share,
// then more while ranks remain. Several workers of a host may offer the same GPU; slots prefers
// the GPUs that fewer of them use.
func (a *attempt) slots(ranks int) []slot {
	taken := make(map[string]int) // by a GPU's id
	of := make([][]slot, len(a.shares))
	for left := ranks; left > 0; {
		before := left
		for i, s := range a.shares {
			var best *wire.OfferedDevice
			for _, d := range gpus(s.Offer) {
				has := func(x slot) bool { return bytes.Equal(x.device.GetId(), d.GetId()) }
				if !slices.ContainsFunc(of[i], has) && (best == nil || taken[string(d.GetId())] < taken[string(best.GetId())]) {
					best = d
				}
			}
			// A worker gets a second GPU only if no other worker uses it.
			if best == nil || left == 0 || len(of[i]) > 0 && taken[string(best.GetId())] > 0 {
				continue
			}
			of[i] = append(of[i], slot{s, best})
			taken[string(best.GetId())]++
			left--
		}
		if left == before {
			break
		}
	}
	var all []slot
	for _, some := range of {
		all = append(all, some...)
	}
	return all
}

// divideGPUs divides the ranks among the workers by the memory of their GPUs.
func (a *attempt) divideGPUs(as plan.Assignment) error {
	need, err := as.Plan.TensorBytes()
	if err != nil {
		return err
	}
	all := a.slots(len(need))
	shared := make(map[string]int64)
	for _, s := range all {
		shared[string(s.device.GetId())]++
	}
	var room []arrange.Capacity
	var hosts []string
	for _, s := range all {
		hosts = append(hosts, s.share.host())
		name := fmt.Sprintf("%s, GPU %d", s.share.Name, s.device.GetOrdinal())
		room = append(room, arrange.Capacity{Name: name, MemoryBytes: s.device.GetMemoryBytes() / shared[string(s.device.GetId())], Cores: 1})
	}
	parts, apart, err := arrange.Ranks(as.Plan.Grid(), need, as.Plan.RankFLOPs(), room, hosts)
	if err != nil {
		return err
	}
	ranks := make([][]int, len(a.shares))
	for i, s := range all {
		of := slices.Index(a.shares, s.share)
		ranks[of] = append(ranks[of], parts[i]...)
		for range parts[i] {
			s.share.devices = append(s.share.devices, s.device)
		}
	}
	a.give(ranks)
	a.apart = apart
	return nil
}

// checkNumbers refuses GPU numbers if cluster.place does not say on which worker.
func checkNumbers(cfg *config.Config) error {
	if len(cfg.Cluster.Place) > 0 {
		return nil
	}
	for r := range cfg.Ranks() {
		if n := cfg.Device.OrdinalOf(cfg.StageOf(r)); n >= 0 {
			return cfg.Errorf(device.Key(cfg),
				`rank %d asks for cuda:%d, but on which worker? Name each rank's worker in cluster.place, or write "cuda" without a number to have ranks placed by GPU memory`, r, n)
		}
	}
	return nil
}

// onGPUs chooses the GPU of each of a share's ranks: by its number, or in turn.
func (s *share) onGPUs(cfg *config.Config) error {
	g := gpus(s.Offer)
	if len(g) == 0 {
		return nil
	}
	for i, r := range s.ranks {
		d := g[i*len(g)/len(s.ranks)]
		if n := cfg.Device.OrdinalOf(cfg.StageOf(r)); n >= 0 {
			at := slices.IndexFunc(g, func(d *wire.OfferedDevice) bool { return int(d.GetOrdinal()) == n })
			if at < 0 {
				var has []string
				for _, d := range g {
					has = append(has, fmt.Sprintf("cuda:%d", d.GetOrdinal()))
				}
				return cfg.Errorf("cluster.place", "rank %d asks for cuda:%d of worker %s, which offers only %s", r, n, s.Name, strings.Join(has, ", "))
			}
			d = g[at]
		}
		s.devices = append(s.devices, d)
	}
	return nil
}

// of returns the device of a share's rank, the bytes that the rank needs there, and the bytes that the device has.
func (s *share) of(cfg *config.Config, rank int, hostBytes, tensorBytes []int64) (name string, needs, has int64) {
	for i, r := range s.ranks {
		if r == rank && device.KindOf(cfg, cfg.StageOf(rank)) == device.CUDA && i < len(s.devices) {
			return s.devices[i].GetName(), tensorBytes[rank], s.devices[i].GetMemoryBytes()
		}
	}
	return "", hostBytes[rank], s.Offer.GetMemoryBytes()
}

// deviceNames lists the kinds of devices that the config's ranks compute on.
func deviceNames(cfg *config.Config) string {
	var names []string
	cpu, gpu := kindsOf(cfg)
	if gpu {
		names = append(names, device.CUDA)
	}
	if cpu {
		names = append(names, device.CPU)
	}
	return strings.Join(names, ", ")
}
