package cluster

import (
	"context"
	"time"

	"github.com/troupe-ml/troupe/cluster/internal/pki"
	"github.com/troupe-ml/troupe/internal/wire"
)

// TokenInfo describes a token, without its secret.
type TokenInfo = pki.TokenInfo

// NewToken creates a token. The coordinator allows it only if it was started with Config.RemoteTokens.
func (c *Client) NewToken(ctx context.Context, role pki.Role, ttl time.Duration) (Token, error) {
	m, err := c.ask(ctx,
		&wire.ApiRequest{Kind: &wire.ApiRequest_Tokens{Tokens: &wire.TokensRequest{
			Kind: &wire.TokensRequest_Create{Create: &wire.CreateToken{Role: string(role), TtlS: int64(ttl / time.Second)}}}}})
	if err != nil {
		return Token{}, err
	}
	return ParseToken(m.GetTokens().GetToken())
}

// Tokens lists the coordinator's tokens. The coordinator allows it only if it was started with Config.RemoteTokens.
func (c *Client) Tokens(ctx context.Context) ([]TokenInfo, error) {
	m, err := c.ask(ctx,
		&wire.ApiRequest{Kind: &wire.ApiRequest_Tokens{Tokens: &wire.TokensRequest{Kind: &wire.TokensRequest_List{List: &wire.ListTokens{}}}}})
	var all []TokenInfo
	for _, t := range m.GetTokens().GetTokens() {
		all = append(all, TokenInfo{ID: t.GetId(), Role: pki.Role(t.GetRole()), Expires: time.Unix(t.GetExpiresS(), 0), Revoked: t.GetRevoked(),
			Uses: t.GetUses()})
	}
	return all, err
}

// NameInfo describes a worker's name and its holder.
type NameInfo = pki.NameInfo

// Names lists the workers' names. The coordinator allows it only if it was started with Config.RemoteTokens.
func (c *Client) Names(ctx context.Context) (all []NameInfo, err error) {
	m, err := c.ask(ctx,
		&wire.ApiRequest{Kind: &wire.ApiRequest_Tokens{Tokens: &wire.TokensRequest{Kind: &wire.TokensRequest_List{List: &wire.ListTokens{}}}}})
	for _, n := range m.GetTokens().GetNames() {
		all = append(all, NameInfo{Name: n.GetName(), Token: n.GetToken(), Until: time.Unix(n.GetUntilS(), 0)})
	}
	return all, err
}

// Release frees a worker's name for another key. The coordinator allows it only if it was started with Config.RemoteTokens.
func (c *Client) Release(ctx context.Context, name string) error {
	_, err := c.ask(ctx,
		&wire.ApiRequest{Kind: &wire.ApiRequest_Tokens{Tokens: &wire.TokensRequest{
			Kind: &wire.TokensRequest_Release{Release: &wire.ReleaseName{Name: name}}}}})
	return err
}

// Revoke revokes a token and disconnects every process that joined with it. The coordinator allows it only if it was started
// with Config.RemoteTokens.
func (c *Client) Revoke(ctx context.Context, id string) error {
	_, err := c.ask(ctx,
		&wire.ApiRequest{Kind: &wire.ApiRequest_Tokens{Tokens: &wire.TokensRequest{
			Kind: &wire.TokensRequest_Revoke{Revoke: &wire.RevokeToken{Id: id}}}}})
	return err
}
