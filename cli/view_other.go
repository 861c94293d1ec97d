//go:build !unix

package cli

import (
	"context"
	"os"

	tea "charm.land/bubbletea/v2"
)

// canView is false: views need signals that this system does not have.
const canView = false

func signalSelf(os.Signal) tea.Cmd { return nil }

func suspendGroup() tea.Msg { return nil }

func inForeground(*os.File) bool { return true }

func mindSuspension(ctx context.Context, _ *tea.Program) { <-ctx.Done() }
