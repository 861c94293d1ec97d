package plan

// checkEdge rejects a layout in which stages other than the first one read data: with cluster.edge the data stays on its host.
func (p *Plan) checkEdge() error {
	c := p.cfg
	if !c.Cluster.Edge {
		return nil
	}
	for stage, chunks := range p.chunks {
		for _, chunk := range chunks {
			if stage > 0 && p.model.ReadsData(chunk) {
				return c.Errorf("cluster.edge",
					"chunk %d (%s) on stage %d reads data, but the data stays on stage 0; use schedule u-shape, which has the first and last chunk on stage 0, and a layout with such layers in these two chunks",
					chunk.Chunk, string(p.layout.Chunks[chunk.Chunk]), stage)
			}
		}
	}
	return nil
}

// readers reports for each chunk whether its layers read data.
func (p *Plan) readers() []bool {
	reads := make([]bool, p.table.NumChunks)
	for _, chunks := range p.chunks {
		for _, c := range chunks {
			reads[c.Chunk] = p.model.ReadsData(c)
		}
	}
	return reads
}

// holders returns the stages that use each parameter.
func (p *Plan) holders() map[string][]int {
	stages := make(map[string][]int)
	for stage, chunks := range p.chunks {
		for name := range p.model.ParameterNames(chunks) {
			stages[name] = append(stages[name], stage)
		}
	}
	return stages
}
