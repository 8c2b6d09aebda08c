package main

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"plantstore/client"
)

func webhookCommands(env environment) *cobra.Command {
	return group("webhook", `
Manage webhook endpoints in a running service. An endpoint gets each new plant of the token's store.
The token needs the scope webhooks:manage. Set the service with --url, and the token with
PLANTSTORE_TOKEN or --token-file.`, `
  plantstore webhook add https://shop.example/hook
  plantstore webhook list`,
		webhookAddCommand(env), webhookListCommand(env),
		env.command("remove ID", `
Remove an endpoint and its deliveries, also waiting ones. Nothing is printed.`, `
  plantstore webhook remove wh_vhlg4bo3pkok`).changesWebhook("ID", removeWebhook),
		env.command("disable ID", `
Disable an endpoint. It never gets plants that are created until it is enabled.`, `
  plantstore webhook disable wh_vhlg4bo3pkok`).changesWebhook("ID", setDisabled(true)),
		env.command("enable ID", `
Enable an endpoint. It gets waiting deliveries, and plants that are created from now on.`, `
  plantstore webhook enable wh_vhlg4bo3pkok`).changesWebhook("ID", setDisabled(false)),
		env.command("rotate ID", `
Replace the secret of an endpoint and print the new one. For 24 hours, both sign each request.`, `
  plantstore webhook rotate wh_vhlg4bo3pkok`).changesWebhook("ID", (*client.Client).RotateWebhook),
		webhookDeliveriesCommand(env), webhookReplayCommand(env))
}

func webhookAddCommand(env environment) *cobra.Command {
	f := env.command("add URL", `
Add an endpoint, and print it with its secret, which is shown only once. The service sends each new
plant to the URL in a signed request.`, `
  plantstore webhook add https://shop.example/hook
  plantstore webhook add https://shop.example/hook --description "Shop, production" --json`)
	description := f.String("description", "", "`text` that webhook list prints")
	return f.changesWebhook("URL", func(c *client.Client, ctx context.Context, url string) (client.Webhook, error) {
		return c.AddWebhook(ctx, client.Webhook{URL: url, Description: *description})
	})
}

func webhookListCommand(env environment) *cobra.Command {
	s := env.command("list", `
List the endpoints of the store, oldest first. TARGET is the URL, or pull.`, `
  plantstore webhook list
  plantstore webhook list --json`).service()
	return s.calls(func(ctx context.Context, c *client.Client) error {
		all, err := c.Webhooks(ctx)
		return printTable(env, *s.json, all, err, webhookHeader, webhookRow, all...)
	})
}

// webhookChange changes an endpoint and returns what is printed. A method of the client can be one.
type webhookChange func(c *client.Client, ctx context.Context, argument string) (client.Webhook, error)

// changesWebhook returns a command that calls change with its argument, and prints the endpoint.
func (f *flags) changesWebhook(argument string, change webhookChange) *cobra.Command {
	value, s := f.takesText(argument), f.service()
	return s.calls(func(ctx context.Context, c *client.Client) error {
		w, err := change(c, ctx, *value)
		if err != nil || w.ID == "" {
			return withAdvice(err, "check with webhook list before running it again")
		}
		header := webhookHeader
		if w.Secret != "" {
			header += "\tSECRET"
		}
		return printTable(f.env, *s.json, w, nil, header, webhookRow, w)
	})
}

func removeWebhook(c *client.Client, ctx context.Context, id string) (none client.Webhook, err error) {
	return none, c.RemoveWebhook(ctx, id)
}

func setDisabled(to bool) webhookChange {
	return func(c *client.Client, ctx context.Context, id string) (client.Webhook, error) {
		w, err := c.Webhook(ctx, id)
		if w.Disabled = to; err != nil {
			return w, err
		}
		return c.ChangeWebhook(ctx, w)
	}
}

func webhookDeliveriesCommand(env environment) *cobra.Command {
	f := env.command("deliveries ID", `
List deliveries of an endpoint, newest first. LAST TRY has the duration, HTTP status and error of
the last try.`, `
  plantstore webhook deliveries wh_vhlg4bo3pkok
  plantstore webhook deliveries wh_vhlg4bo3pkok --status failed --limit 1000 --json`)
	id, status := f.takesText("ID"), f.String("status", "", "only `status` waiting, replaying, delivered or failed")
	limit, s := f.Int("limit", 100, "print at most `n` deliveries"), f.service()
	return s.calls(func(ctx context.Context, c *client.Client) (err error) {
		if *limit < 1 {
			return usagef("--limit is %d: use 1 or more", *limit)
		}
		var all, page []client.Delivery
		filter := client.DeliveryFilter{Status: *status}
		for len(page) == filter.Limit && len(all) < *limit && err == nil {
			filter.Limit = min(100, *limit-len(all))
			if page, err = c.Deliveries(ctx, *id, filter); len(page) > 0 {
				all, filter.Before = append(all, page...), page[len(page)-1].ID
			}
		}
		return printTable(env, *s.json, all, err, deliveryHeader, deliveryRow, all...)
	})
}

func webhookReplayCommand(env environment) *cobra.Command {
	f := env.command("replay ID [DELIVERY...]", `
Send deliveries again. Name their ids, or use --since for the failed ones of plants created since a
time, at most the 10,000 newest.`, `
  plantstore webhook replay wh_vhlg4bo3pkok msg_06GV3TLC9F72
  plantstore webhook replay wh_vhlg4bo3pkok --since 24h`)
	since := f.String("since", "",
		"replay failed deliveries of plants created since this\n`time`, such as 24h or 2026-01-01")
	var ids []string
	f.takes("ID [DELIVERY]...", func(id string) error { ids = append(ids, id); return nil })
	s := f.service()
	return s.calls(func(ctx context.Context, c *client.Client) error {
		if (len(ids) == 1) == (*since == "") {
			return usagef("use either ids of deliveries or --since")
		}
		var all []client.Delivery
		for _, id := range ids[1:] {
			d, err := c.ReplayDelivery(ctx, ids[0], id)
			if err != nil {
				return fmt.Errorf("%w; stopped at %s", err, id)
			}
			all = append(all, d)
		}
		if *since == "" {
			return printTable(env, *s.json, all, nil, deliveryHeader, deliveryRow, all...)
		}
		at, err := parsePast("since", *since, time.Now())
		if err != nil {
			return err
		}
		n, err := c.ReplayFailed(ctx, ids[0], at)
		return printTable(env, *s.json, map[string]int{"replaying": n}, err, "REPLAYING", strconv.Itoa, n)
	})
}

const webhookHeader = "ID\tTARGET\tDESCRIPTION\tCREATED\tDISABLED"

func webhookRow(w client.Webhook) string {
	disabled := cell(strings.TrimSpace(timestamp(w.DisabledAt) + " " + w.DisabledReason))
	return strings.TrimRight(strings.Join([]string{cell(w.ID), cell(cmp.Or(w.URL, w.Kind)), cell(w.Description),
		timestamp(w.Created), disabled, w.Secret}, "\t"), "\t")
}

const deliveryHeader = "ID\tPLANT\tSTATUS\tCREATED\tTRIES\tLAST TRY\tNEXT TRY"

func deliveryRow(d client.Delivery) string {
	last := "-"
	for _, t := range d.Tries {
		last = fmt.Sprintf("%d ms, %s", t.MS, strings.TrimPrefix(fmt.Sprintf("%d %s", t.Status, t.Error), "0 "))
	}
	return fmt.Sprintf("%s\t%d\t%s\t%s\t%d\t%s\t%s", cell(d.ID), d.Plant, cell(d.Status), timestamp(d.Created),
		len(d.Tries), cell(strings.TrimRight(last, ", ")), timestamp(d.Next))
}
