package driver

import "unsafe"

// Graph is work that was captured from a stream, ready to be launched again and again.
type Graph uintptr

// BeginCapture makes a stream keep what is put into it instead of doing it.
func (d *Driver) BeginCapture(s Stream) error {
	const relaxed = 2 // other calls of this thread and of others stay allowed
	return d.do(cuStreamBeginCapture, uintptr(s), relaxed)
}

// EndCapture ends that and makes a graph of what was kept. The stream is usable again even
// if there is an error.
func (d *Driver) EndCapture(s Stream) (Graph, error) {
	var template uintptr
	if err := d.do(cuStreamEndCapture, uintptr(s), uintptr(unsafe.Pointer(&template))); err != nil {
		return 0, err
	}
	var g Graph
	err := d.do(cuGraphInstantiateWithFlags, uintptr(unsafe.Pointer(&g)), template, 0)
	if end := d.do(cuGraphDestroy, template); err == nil && end != nil {
		_ = d.EndGraph(g) // its template's fate is the error
		err = end
	}
	return g, err
}

// LaunchGraph puts all of a graph into a stream.
func (d *Driver) LaunchGraph(g Graph, s Stream) error {
	return d.do(cuGraphLaunch, uintptr(g), uintptr(s))
}

// EndGraph gives a graph back; launches of it that are under way are finished.
func (d *Driver) EndGraph(g Graph) error { return d.do(cuGraphExecDestroy, uintptr(g)) }
