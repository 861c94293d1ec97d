//go:build !linux

package netlab

import (
	"context"
	"errors"
	"os/exec"
)

var errLinux = errors.New("they need Linux network namespaces")

const frameBytes = mtuBytes

type node struct{}

func newNode(int) (*node, error)    { return nil, errLinux }
func (*node) do(func() error) error { return errLinux }
func (*node) setUp(bool) error      { return errLinux }
func (*node) path() string          { return "" }
func (*node) killAll() (int, error) { return 0, errLinux }
func (*node) close()                {}

type forwarder struct{}

func startForwarder(*Lab) (*forwarder, error) { return nil, errLinux }
func (*forwarder) wake()                      {}
func (*forwarder) stop() error                { return nil }

func enterCommand(ctx context.Context, _, name string, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Err = errLinux
	return cmd
}
