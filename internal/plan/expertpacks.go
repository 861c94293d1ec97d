package plan

import "github.com/troupe-ml/troupe/tensorops/cpu"

// packsExperts reports whether the packed matrices of experts have no other limit than the memory: in bfloat16, on the CPU. They take 4
// bytes for each weight of the experts.
func (p *Plan) packsExperts() bool {
	if p.leaveExperts || p.model.Config.Experts.Count == 0 || p.cfg.Device.DType != bfloat16 || !cpu.MultipliesBF16(p.cfg.Device.Kernels) {
		return false
	}
	for stage := range p.table.NumRanks() {
		if p.StageOptions(stage).Pack {
			return true
		}
	}
	return false
}

// limitPacks leaves the matrices of experts unpacked if a rank, with the shadow that it holds, would need more than device.memory_gib.
func (p *Plan) limitPacks() {
	if p.limitBytes() > 0 && p.packsExperts() {
		p.leaveExperts = p.checkDeviceMemory(0) != nil
	}
}

// withFewerPacks checks memory, a second time without the packed matrices of experts if it does not suffice with them.
func (p *Plan) withFewerPacks(check func() error) error {
	err := check()
	if err == nil || !p.packsExperts() {
		return err
	}
	p.leaveExperts, p.memo = true, new(memo)
	return check()
}
