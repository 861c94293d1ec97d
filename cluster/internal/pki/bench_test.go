package pki_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/pki"
)

// BenchmarkHandshake measures both sides of a connection, each with its certificate.
func BenchmarkHandshake(b *testing.B) {
	a := newAuthority(b)
	server := pki.ServerTLS(a.Root(), always(issue(b, a, coordinator)))
	client := pki.ClientTLS(a.Root(), always(issue(b, a, worker)))
	for b.Loop() {
		if m := meet(server, client); m.err() != nil {
			b.Fatal(m.err())
		}
	}
}

// BenchmarkRefuse measures the cost of a peer with a wrong secret for an authority in a folder.
func BenchmarkRefuse(b *testing.B) {
	a, err := pki.OpenAuthority(filepath.Join(b.TempDir(), "authority"), time.Now())
	if err != nil {
		b.Fatal(err)
	}
	token := newToken(b, a, pki.Worker)
	wrong := make([]byte, 32)
	for b.Loop() {
		if _, err := a.Redeem(token.ID, wrong, time.Now()); err == nil {
			b.Fatal("redeemed")
		}
	}
}

// BenchmarkSignJoin measures the cost of a worker's joining for an authority in a folder.
func BenchmarkSignJoin(b *testing.B) {
	a, err := pki.OpenAuthority(filepath.Join(b.TempDir(), "authority"), time.Now())
	if err != nil {
		b.Fatal(err)
	}
	token := newToken(b, a, pki.Worker)
	_, csr, err := pki.NewRequest(worker)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, _, err := a.SignJoin(token.ID, token.Secret[:], csr, "a", time.Now()); err != nil {
			b.Fatal(err)
		}
	}
}
