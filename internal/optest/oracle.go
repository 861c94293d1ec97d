package optest

import (
	"sync"

	"github.com/troupe-ml/troupe/tensorops/ref"
)

// Oracle is what the device ref says of cases, each of which it is asked once.
type Oracle struct {
	mu   sync.Mutex
	said map[string][]*output
}

// run asks for a case, by its name.
func (o *Oracle) run(c Case) ([]*output, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if said, ok := o.said[c.Name]; ok {
		return said, nil
	}
	dev := ref.New()
	defer dev.Close()
	outputs, err := c.run(dev.NewStream("oracle"))
	if err != nil {
		return nil, err
	}
	if o.said == nil {
		o.said = make(map[string][]*output)
	}
	o.said[c.Name] = outputs
	return outputs, nil
}
