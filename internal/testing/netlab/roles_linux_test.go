package netlab

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// roleVariable is the environment variable that makes the test binary a program of a test, in a host or next to the test.
const roleVariable = "NETLAB_TEST_ROLE"

var roles = map[string]func(){"echo": playEcho, "abandon": playAbandon}

// playEcho listens at ECHO_ADDRESS, says where on its output, and echoes connections.
func playEcho() {
	listener, err := net.Listen("tcp", os.Getenv("ECHO_ADDRESS"))
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(listener.Addr())
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go func() { _, _ = io.Copy(conn, conn) }() // ends with the process
	}
}

// playAbandon makes a lab, runs a program in it, prints the namespaces, and waits to be killed.
func playAbandon() {
	lab, err := open(new(testing.B), []string{"a", "b"})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	cmd := lab.Command(context.Background(), "b", "sleep", "3600")
	if err := cmd.Start(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for range 1000 { // until the program is in its namespace
		if len(processesIn(lab.nodes[1].id)) == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println(lab.nodes[0].id, lab.nodes[1].id, cmd.Process.Pid)
	select {}
}
