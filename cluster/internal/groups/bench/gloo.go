package main

import (
	_ "embed"
	"fmt"
	"net"
	"os"
	"os/exec"
)

//go:embed gloo.py
var script string

// startGloo starts n Python processes.
func startGloo(n int, python string) (side, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := l.Addr().String()
	_ = l.Close() // the first process listens there
	p := &processes{}
	for rank := range n {
		cmd := exec.Command(python, "-c", script, address, fmt.Sprint(rank), fmt.Sprint(n))
		cmd.Env = append(os.Environ(), "GLOO_SOCKET_IFNAME=lo", "OMP_NUM_THREADS=1")
		if err := p.start(cmd); err != nil {
			p.close()
			return nil, err
		}
	}
	if _, err := p.replies(); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}
