package plan

// checkEdge refuses a layout under which data would have to leave the first stage, whose host keeps them.
func (p *Plan) checkEdge() error {
	c := p.cfg
	if !c.Cluster.Edge {
		return nil
	}
	for stage, chunks := range p.chunks {
		for _, chunk := range chunks {
			if stage > 0 && p.model.ReadsData(chunk) {
				return c.Errorf("cluster.edge",
					"chunk %d (%s) is on stage %d and reads data, which stay with stage 0: use schedule u-shape, whose first and last chunk are there, and a layout that has such layers in these",
					chunk.Chunk, string(p.layout.Chunks[chunk.Chunk]), stage)
			}
		}
	}
	return nil
}

// readers says of each chunk whether its layers read data.
func (p *Plan) readers() []bool {
	reads := make([]bool, p.table.NumChunks)
	for _, chunks := range p.chunks {
		for _, c := range chunks {
			reads[c.Chunk] = p.model.ReadsData(c)
		}
	}
	return reads
}

// holders are the stages that use each parameter.
func (p *Plan) holders() map[string][]int {
	stages := make(map[string][]int)
	for stage, chunks := range p.chunks {
		for name := range p.model.ParameterNames(chunks) {
			stages[name] = append(stages[name], stage)
		}
	}
	return stages
}
