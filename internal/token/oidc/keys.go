package oidc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"

	"plantstore/internal/token"
)

const (
	fetchTimeout  = 10 * time.Second
	fetchInterval = 5 * time.Minute  // so that new keys are there before they are used
	minInterval   = 10 * time.Second // between fetches, however many JWTs have unknown keys
	maxBytes      = 1 << 20          // of a response
)

type keySet struct {
	keys    []jose.JSONWebKey
	fetched time.Time
}

// algorithms have a public key: none and HMAC, for which a client could use a public key as the secret, do not.
var algorithms = []jose.SignatureAlgorithm{
	jose.RS256, jose.RS384, jose.RS512, jose.PS256, jose.PS384, jose.PS512,
	jose.ES256, jose.ES384, jose.ES512, jose.EdDSA,
}

// verifySignature returns the payload of a JWT whose algorithm is supported. It does not wait for keys: a JWT with an
// unknown key would wait at the expense of others.
func (v *Verifier) verifySignature(jwt string) ([]byte, error) {
	signed, err := jose.ParseSignedCompact(jwt, algorithms)
	if err != nil {
		return nil, &token.Rejected{Reason: malformed}
	}
	set, header := v.keys.Load(), signed.Signatures[0].Protected
	known := set != nil && time.Since(set.fetched) < minInterval // so a fetch would not help
	for i := 0; set != nil && i < len(set.keys); i++ {
		key := set.keys[i]
		if header.KeyID != "" && header.KeyID != key.KeyID {
			continue
		}
		known = known || header.KeyID != ""
		if key.Algorithm != "" && key.Algorithm != header.Algorithm {
			continue
		}
		if payload, err := signed.Verify(key.Key); err == nil {
			return payload, nil
		}
	}
	if !known {
		select {
		case v.wanted <- struct{}{}:
		default:
		}
		// Without a key id every key was tried, which takes long enough that it must count against the address.
		if set == nil || header.KeyID != "" {
			return nil, token.ErrKeys
		}
	}
	return nil, &token.Rejected{Reason: "no key of the identity provider has signed it"}
}

// Run fetches the keys of the provider until ctx ends: at once, every few minutes, and when a JWT has an unknown key.
// Keys stay in use while the provider does not respond.
func (v *Verifier) Run(ctx context.Context) {
	for logged := ""; ; {
		err := v.fetch(ctx)
		state := "fetched the keys of the identity provider"
		wait := fetchInterval
		if err != nil {
			state, wait = fmt.Sprintf("%.300s", err), minInterval
		}
		switch {
		case ctx.Err() != nil:
			return
		case state == logged:
		case err != nil:
			v.cfg.Log.Warn("the keys of the identity provider can't be fetched; retrying", "reason", state)
		default:
			v.cfg.Log.Info(state, "issuer", v.cfg.Issuer, "keys", len(v.keys.Load().keys))
		}
		logged = state
		if !v.sleep(ctx, minInterval, nil) || !v.sleep(ctx, wait-minInterval, v.wanted) {
			return
		}
	}
}

// sleep waits, at most until early has an element, and reports whether ctx goes on.
func (v *Verifier) sleep(ctx context.Context, d time.Duration, early <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-early:
	case <-time.After(d):
	}
	return true
}

// fetch reads the discovery document of the issuer (OpenID Connect Discovery 1.0), and the keys that it leads to.
func (v *Verifier) fetch(ctx context.Context) error {
	var found struct {
		Issuer  string `json:"issuer"`
		KeysURL string `json:"jwks_uri"`
	}
	if err := v.get(ctx, strings.TrimSuffix(v.cfg.Issuer, "/")+"/.well-known/openid-configuration", &found); err != nil {
		return err
	}
	if found.Issuer != v.cfg.Issuer {
		return fmt.Errorf("the issuer is %q, but names itself %q", v.cfg.Issuer, found.Issuer)
	}
	if err := checkURL(found.KeysURL); err != nil {
		return fmt.Errorf("jwks_uri: %w", err)
	}
	var set struct{ Keys []json.RawMessage }
	if err := v.get(ctx, found.KeysURL, &set); err != nil {
		return err
	}
	keys := &keySet{verificationKeys(set.Keys), time.Now()}
	if len(keys.keys) == 0 {
		return fmt.Errorf("%s has no public key", found.KeysURL)
	}
	v.keys.Store(keys)
	return nil
}

// get reads a JSON document of a provider, which may be faulty.
func (v *Verifier) get(ctx context.Context, from string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return err
	}
	response, err := v.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s returns %s", from, response.Status)
	}
	if err := json.NewDecoder(http.MaxBytesReader(nil, response.Body, maxBytes)).Decode(into); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	return nil
}

// verificationKeys returns the public keys that are for signatures. Keys of unknown types are ignored.
func verificationKeys(list []json.RawMessage) (keys []jose.JSONWebKey) {
	for _, text := range list {
		var key jose.JSONWebKey
		var purpose struct {
			Operations []string `json:"key_ops"`
		}
		if errors.Join(json.Unmarshal(text, &key), json.Unmarshal(text, &purpose)) == nil && key.IsPublic() &&
			key.Use != "enc" && (purpose.Operations == nil || slices.Contains(purpose.Operations, "verify")) {
			keys = append(keys, key)
		}
	}
	return keys
}

// checkURL returns an error unless a URL is encrypted, or stays on this machine.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err == nil && u.Host != "" {
		ip := net.ParseIP(u.Hostname())
		if u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()) {
			return nil
		}
	}
	return fmt.Errorf("%q is invalid: use an https:// URL", text)
}
