package netlab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"
)

// enterArgument, as the first argument of a test's binary, makes the binary enter a namespace and
// execute another program there, so that no tool is needed.
const enterArgument = "-netlab-enter"

// self is the binary of this process, even if its file was removed or replaced.
const self = "/proc/self/exe"

func enterCommand(ctx context.Context, namespace, name string, args []string) *exec.Cmd {
	program := exec.CommandContext(ctx, name, args...) // finds the program, or sets Err
	cmd := exec.CommandContext(ctx, self, append([]string{enterArgument, namespace, program.Path}, program.Args...)...)
	cmd.Err = program.Err
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// init runs on the process's main thread, whose namespace the program inherits.
func init() {
	if len(os.Args) < 5 || os.Args[1] != enterArgument {
		return
	}
	err := enter(os.Args[2], os.Args[3], os.Args[4:])
	fmt.Fprintf(os.Stderr, "netlab: run %s in the host: %v\n", os.Args[3], err)
	os.Exit(127)
}

func enter(namespace, program string, argv []string) error {
	file, err := unix.Open(namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", namespace, err)
	}
	if err := unix.Setns(file, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter %s: %w", namespace, err)
	}
	return syscall.Exec(program, argv, os.Environ()) // it restores the limit of open files that Go raised
}
