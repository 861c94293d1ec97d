package cluster

import (
	"fmt"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/internal/wire"
)

// tokens makes, lists and revokes tokens, where the coordinator lets it.
func (a *answerer) tokens(m *wire.TokensRequest) error {
	if !a.c.cfg.RemoteTokens {
		return fmt.Errorf("%w: this coordinator gives no tokens over the network; do it on its host, or start it with --remote-tokens",
			ErrForbidden)
	}
	reply := &wire.TokensReply{}
	switch k := m.Kind.(type) {
	case *wire.TokensRequest_Create:
		if s := k.Create.GetTtlS(); s < 1 || s > int64(forever/time.Second) {
			return fmt.Errorf("%w: a token with a life of %d s", ErrRequest, s)
		}
		t, err := a.c.NewToken(pki.Role(k.Create.GetRole()), time.Duration(k.Create.GetTtlS())*time.Second)
		if err != nil {
			return err
		}
		a.c.log.Info("made a token", "token", t.ID, "role", t.Role, "by", a.peer.Name)
		reply.Token = t.String()
	case *wire.TokensRequest_List:
		for _, n := range a.c.authority.Names() {
			reply.Names = append(reply.Names, &wire.NameInfo{Name: n.Name, Token: n.Token, UntilS: n.Until.Unix()})
		}
		for _, t := range a.c.authority.Tokens() {
			reply.Tokens = append(reply.Tokens, &wire.TokenInfo{Id: t.ID, Role: string(t.Role), ExpiresS: t.Expires.Unix(), Revoked: t.Revoked,
				Uses: t.Uses})
		}
	case *wire.TokensRequest_Revoke:
		if err := a.c.authority.Revoke(k.Revoke.GetId()); err != nil {
			return err
		}
		a.c.log.Info("revoked a token, and what it has let in", "token", k.Revoke.GetId(), "by", a.peer.Name)
	case *wire.TokensRequest_Release:
		if err := a.c.authority.Release(k.Release.GetName()); err != nil {
			return err
		}
		a.c.log.Info("released a worker's name", "name", k.Release.GetName(), "by", a.peer.Name)
	default:
		return fmt.Errorf("%w: nothing that it knows was asked about tokens", ErrRequest)
	}
	return a.write(&wire.ApiReply{Kind: &wire.ApiReply_Tokens{Tokens: reply}})
}
