package cluster

// LowerGeneration makes the coordinator number its attempts from below what it would.
func (c *Coordinator) LowerGeneration(by uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation -= by
}
