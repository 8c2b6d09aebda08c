package main

import "testing"

func TestOIDCFlags(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--oidc-issuer", "https://id.example"}, "--oidc-issuer and --oidc-audience must be set together"},
		{[]string{"--oidc-audience", "plants"}, "--oidc-issuer and --oidc-audience must be set together"},
		{[]string{"--oidc-store-claim", "tenant"}, "--oidc-issuer and --oidc-audience must be set together"},
		{[]string{"--oidc-issuer", "http://id.example", "--oidc-audience", "plants"},
			"--oidc-issuer \"http://id.example\" is invalid: use an https:// URL"},
	} {
		got := plantstore(t, nil, append([]string{"serve", "--db", t.TempDir() + "/x.db"}, test.args...)...)
		got.want(t, test.want, 2, "", "plantstore serve: "+test.want+"\n")
	}
}
