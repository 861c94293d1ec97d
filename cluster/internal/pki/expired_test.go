package pki_test

import (
	"context"
	"crypto/tls"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/pki"
)

// TestExpired: a process reports that its own certificate has expired; the other side only reports that it is bad.
func TestExpired(t *testing.T) {
	now := time.Now()
	a, err := pki.NewAuthority(now)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := a.Issue(pki.Identity{Name: "w1", Role: pki.Worker}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	k := pki.NewKeeper(cert, func(context.Context, []byte) ([]byte, error) { return nil, nil }, slog.New(slog.DiscardHandler))
	if err := pki.Expired(k, now); err != nil {
		t.Errorf("of a valid one: %v", err)
	}
	if err := pki.Expired(k, now.Add(2*time.Hour)); err == nil || !strings.Contains(err.Error(), "(worker w1) expired at ") ||
		!strings.Contains(err.Error(), "--token-file") {
		t.Errorf("of one whose time is over: %v", err)
	}
	if err := pki.Expired(pki.NewKeeper(tls.Certificate{}, nil, slog.New(slog.DiscardHandler)), now); err != nil {
		t.Errorf("of none: %v", err)
	}
}
