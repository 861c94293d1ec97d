package cluster

import (
	"fmt"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/internal/wire"
)

// tokens creates, lists and revokes tokens, if the coordinator allows it over the network.
func (a *answerer) tokens(m *wire.TokensRequest) error {
	if !a.c.cfg.RemoteTokens {
		return fmt.Errorf("%w: this coordinator does not manage tokens over the network; run the command on its host, or start it with --remote-tokens",
			ErrForbidden)
	}
	reply := &wire.TokensReply{}
	switch k := m.Kind.(type) {
	case *wire.TokensRequest_Create:
		if s := k.Create.GetTtlS(); s < 1 || s > int64(forever/time.Second) {
			return fmt.Errorf("%w: a token can't be valid for %d s; want 1 to %d", ErrRequest, s, int64(forever/time.Second))
		}
		t, err := a.c.NewToken(pki.Role(k.Create.GetRole()), time.Duration(k.Create.GetTtlS())*time.Second)
		if err != nil {
			return err
		}
		a.c.log.Info("created a token", "token", t.ID, "role", t.Role, "by", a.peer.Name)
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
		a.c.log.Info("revoked a token", "token", k.Revoke.GetId(), "by", a.peer.Name)
	case *wire.TokensRequest_Release:
		if err := a.c.authority.Release(k.Release.GetName()); err != nil {
			return err
		}
		a.c.log.Info("released a worker's name", "name", k.Release.GetName(), "by", a.peer.Name)
	default:
		return fmt.Errorf("%w: it does not know this request about tokens; use the same build on both sides", ErrRequest)
	}
	return a.write(&wire.ApiReply{Kind: &wire.ApiReply_Tokens{Tokens: reply}})
}
