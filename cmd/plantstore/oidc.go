package main

import (
	"context"
	"log/slog"

	"plantstore/internal/token"
	"plantstore/internal/token/oidc"
)

func (f *flags) oidc(o *oidc.Config) {
	f.StringVar(&o.Issuer, "oidc-issuer", "",
		"`URL` of an OpenID Connect identity provider whose tokens (JWTs)\nare accepted too")
	f.StringVar(&o.Audience, "oidc-audience", "", "`name` of this service in the claim aud of its tokens")
	f.StringVar(&o.ScopeClaim, "oidc-scope-claim", "scope", "`claim` with the scopes of its tokens")
	f.StringVar(&o.StoreClaim, "oidc-store-claim", "",
		"`claim` with the store of its tokens\n(default: the store "+token.DefaultStore+")")
}

// newVerifier returns the verifier of JWTs, or nil without --oidc-issuer. Until ctx ends, its keys are kept up to date.
func newVerifier(ctx context.Context, o oidc.Config, log *slog.Logger) (token.Verifier, error) {
	if o.Issuer == "" && o.Audience == "" && o.StoreClaim == "" {
		return nil, nil
	}
	if o.Issuer == "" || o.Audience == "" {
		return nil, usagef("--oidc-issuer and --oidc-audience must be set together")
	}
	o.Log = log
	v, err := oidc.New(o)
	if err != nil {
		return nil, usagef("--oidc-issuer %w", err)
	}
	go v.Run(ctx)
	return v, nil
}
