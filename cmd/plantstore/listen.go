package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"plantstore/client"
	"plantstore/internal/telemetry"
	"plantstore/internal/webhook"
)

func listenCommand(env environment) *cobra.Command {
	f := env.command("listen", `
Print and forward new plants. The secret that signs the requests is printed first. A request that
fails is sent again after pauses of 1 to 30 s; others are sent meanwhile. Without --forward-to,
signatures are only verified. With --json, each line is an object: the endpoint, and then the
deliveries. Ctrl-C removes the endpoint. With --name, it is kept for 7 days, and the next run
continues with waiting plants. The token needs the scope webhooks:manage.`, `
  plantstore listen
  plantstore listen --forward-to http://localhost:3000/hook --name laptop`)
	l := &listener{pauses: map[string]time.Duration{}}
	l.to = f.String("forward-to", "", "`URL` of the receiver, such as http://localhost:3000/hook")
	l.name = f.String("name", "", "`name` of the endpoint, which is then kept")
	l.secret = f.String("secret", "", "`secret` that signs forwarded requests\n(default: a new one of the endpoint)")
	f.variable("secret", webhookSecretVariable)
	l.service = f.service(client.WithRetries(1<<30, time.Second), client.OnWait(l.report))
	return l.calls(l.run)
}

type listener struct {
	*service
	to, name, secret *string
	endpoint         client.Webhook
	pauses           map[string]time.Duration // the last pause of each failed delivery
}

func (l *listener) run(ctx context.Context, c *client.Client) (err error) {
	u, err := url.Parse(*l.to)
	if *l.to != "" && (err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "") {
		return usagef("--forward-to is %q: use a URL such as http://localhost:3000/hook", *l.to)
	}
	if *l.secret != "" && webhook.Sign([]string{*l.secret}, "", time.Time{}, nil) == "" {
		return usagef("--secret is invalid: use one that listen has printed")
	}
	ctx, stop := untilSignal(ctx)
	defer stop()
	if l.endpoint, err = l.open(ctx, c); err != nil {
		return err
	}
	if *l.name == "" {
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			err = cmp.Or(err, c.RemoveWebhook(ctx, l.endpoint.ID))
		}()
	}
	*l.secret = cmp.Or(*l.secret, l.endpoint.Secret)
	err = l.print(l.endpoint, "Endpoint: %s\nSecret: %s\n\n", l.endpoint.ID, *l.secret)
	for err == nil && ctx.Err() == nil {
		err = l.round(ctx, c)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// open returns the endpoint with the name, or a new one.
func (l *listener) open(ctx context.Context, c *client.Client) (client.Webhook, error) {
	if *l.name == "" {
		return c.AddWebhook(ctx, client.Webhook{Kind: "pull", TTL: 24 * 3600, Description: "plantstore listen"})
	}
	all, err := c.Webhooks(ctx)
	i := slices.IndexFunc(all, func(w client.Webhook) bool { return w.Kind == "pull" && w.Description == *l.name })
	switch {
	case err != nil:
		return client.Webhook{}, err
	case i < 0:
		return c.AddWebhook(ctx, client.Webhook{Kind: "pull", TTL: 7 * 24 * 3600, Description: *l.name})
	case all[i].Disabled:
		return all[i], fmt.Errorf("endpoint %s is disabled; enable it with plantstore webhook enable", all[i].ID)
	case *l.secret == "":
		return c.RotateWebhook(ctx, all[i].ID)
	}
	all[i].Secret = *l.secret
	return all[i], nil
}

// round pulls deliveries, and acknowledges those that succeed. Others are pulled again after a pause.
func (l *listener) round(ctx context.Context, c *client.Client) error {
	deliveries, err := c.Pull(ctx, l.endpoint.ID, 20*time.Second)
	var done []string
	for _, d := range deliveries {
		failed := l.deliver(ctx, d)
		switch {
		case failed == nil:
			done = append(done, d.ID)
			delete(l.pauses, d.ID)
			err = cmp.Or(err, l.print(d, "%s  %s\n", cell(d.ID), telemetry.EscapeJSON([]byte(d.Body))))
		case ctx.Err() == nil:
			pause := min(max(2*l.pauses[d.ID], time.Second), 30*time.Second)
			l.pauses[d.ID] = pause
			l.report(fmt.Errorf("%s: %w", d.ID, failed), pause)
			err = cmp.Or(err, l.known(ctx, c.Retry(ctx, l.endpoint.ID, pause, d.ID)))
		}
	}
	if err == nil && len(done) > 0 {
		err = l.known(ctx, c.Ack(ctx, l.endpoint.ID, done...))
	}
	return err
}

// known returns nil after an unknown outcome and a pause: Pull returns the deliveries again if nothing has changed.
func (l *listener) known(ctx context.Context, err error) error {
	if !errors.Is(err, client.ErrUnknown) || ctx.Err() != nil {
		return err
	}
	l.report(err, time.Second)
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
	}
	return nil
}

// deliver forwards a delivery with a new signature. Without --forward-to, it verifies the signature instead.
func (l *listener) deliver(ctx context.Context, d client.Pulled) error {
	header, now := http.Header{}, time.Now()
	for name, value := range d.Headers {
		header.Set(name, value)
	}
	if *l.to == "" {
		return webhook.Verify(l.endpoint.Secret, header, []byte(d.Body), now)
	}
	header.Set("user-agent", "PlantStore/"+versionName())
	header.Set("webhook-timestamp", strconv.FormatInt(now.Unix(), 10))
	header.Set("webhook-signature", webhook.Sign([]string{*l.secret}, d.ID, now, []byte(d.Body)))
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	request, _ := http.NewRequestWithContext(ctx, http.MethodPost, *l.to, strings.NewReader(d.Body)) // run has parsed it
	request.Header = header
	response, err := http.DefaultTransport.RoundTrip(request) // follows no redirect
	if err != nil {
		return err
	}
	if response.Body.Close(); response.StatusCode/100 != 2 {
		return fmt.Errorf("%s returned %s", *l.to, response.Status)
	}
	return nil
}

// report prints an error, and the pause before the next try.
func (l *listener) report(err error, pause time.Duration) {
	text := fmt.Sprintf("%s; trying again in %.1f s", oneLine(err.Error()), pause.Seconds())
	l.f.env.printError(*l.json, newJSONError(err, text), text)
}

func (l *listener) print(value any, format string, args ...any) error {
	if *l.json {
		return l.f.env.printJSON(value, jsontext.Multiline(false))
	}
	_, err := fmt.Fprintf(l.f.env.stdout, format, args...)
	return err
}
