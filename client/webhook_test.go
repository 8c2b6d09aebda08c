package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"plantstore/client"
)

const (
	pushBody = `{"id":"wh_1","kind":"push","url":"https://x.example/","description":"","created":` +
		`"2026-11-19T00:00:00.123Z","disabled":true,"disabled_at":"2026-11-19T01:00:00Z","disabled_reason":"410"}`
	deliveryBody = `{"id":"msg_1","plant":-7,"status":"waiting","created":"2026-11-19T00:00:00Z","next":` +
		`"2026-11-19T00:05:00Z","tries":[{"time":"2026-11-19T00:00:01Z","status":500,"ms":12,"error":"status"},` +
		`{"time":"2026-11-19T00:00:06Z","ms":3,"error":"dns","replay":true}]}`
	printedWebhook = "{wh_1 push https://x.example/ 0  2026-11-19 00:00:00.123 +0000 UTC true " +
		"2026-11-19 01:00:00 +0000 UTC 410 }"
	printedDelivery = "{msg_1 -7 waiting 2026-11-19 00:00:00 +0000 UTC 2026-11-19 00:05:00 +0000 UTC " +
		"[{2026-11-19 00:00:01 +0000 UTC 500 12 status false} {2026-11-19 00:00:06 +0000 UTC 0 3 dns true}]}"
)

// webhookTests have one call of each method, its request, and what it returns for a response.
var webhookTests = []struct {
	call   func(context.Context, *client.Client) (any, error)
	want   seen // with a path below the base URL, and without the token
	status int
	body   string
	result string
}{
	{func(ctx context.Context, c *client.Client) (any, error) {
		return c.AddWebhook(ctx, client.Webhook{URL: "https://x.example/", ID: "ignored", Disabled: true})
	}, seen{"POST", "/webhooks", `{"url":"https://x.example/"}`, "", "application/json", ""},
		201, pushBody, printedWebhook},
	{func(ctx context.Context, c *client.Client) (any, error) {
		return c.AddWebhook(ctx, client.Webhook{Kind: "pull", TTL: 3600, Description: "é"})
	}, seen{"POST", "/webhooks", `{"description":"é","kind":"pull","ttl":3600}`, "", "application/json", ""},
		201, pushBody, printedWebhook},
	{func(ctx context.Context, c *client.Client) (any, error) { return c.Webhooks(ctx) },
		seen{"GET", "/webhooks", "", "", "", ""}, 200, "[" + pushBody + "]", "[" + printedWebhook + "]"},
	{func(ctx context.Context, c *client.Client) (any, error) { return c.Webhook(ctx, "wh_1") },
		seen{"GET", "/webhooks/wh_1", "", "", "", ""}, 200, pushBody, printedWebhook},
	{func(ctx context.Context, c *client.Client) (any, error) { return c.Webhook(ctx, "a/../b?c d") },
		seen{"GET", "/webhooks/a%2F..%2Fb%3Fc%20d", "", "", "", ""}, 200, pushBody, printedWebhook},
	{func(ctx context.Context, c *client.Client) (any, error) {
		return c.ChangeWebhook(ctx, client.Webhook{ID: "wh_1", URL: "https://y", Description: "d", Disabled: true})
	}, seen{"PUT", "/webhooks/wh_1", `{"description":"d","disabled":true,"url":"https://y"}`, "", "application/json", ""},
		200, pushBody, printedWebhook},
	{func(ctx context.Context, c *client.Client) (any, error) {
		return c.ChangeWebhook(ctx, client.Webhook{ID: "wh_2", Kind: "pull", TTL: 3600, Secret: "s"})
	}, seen{"PUT", "/webhooks/wh_2", `{"disabled":false}`, "", "application/json", ""}, 200, pushBody, printedWebhook},
	{func(ctx context.Context, c *client.Client) (any, error) { return nil, c.RemoveWebhook(ctx, "wh_1") },
		seen{"DELETE", "/webhooks/wh_1", "", "", "", ""}, 204, "", "<nil>"},
	{func(ctx context.Context, c *client.Client) (any, error) { return c.RotateWebhook(ctx, "wh_1") },
		seen{"POST", "/webhooks/wh_1/rotate", "", "", "", ""}, 200, pushBody, printedWebhook},
	{func(ctx context.Context, c *client.Client) (any, error) {
		return c.Deliveries(ctx, "wh_1", client.DeliveryFilter{})
	}, seen{"GET", "/webhooks/wh_1/deliveries?limit=100", "", "", "", ""},
		200, "[" + deliveryBody + "]", "[" + printedDelivery + "]"},
	{func(ctx context.Context, c *client.Client) (any, error) {
		return c.Deliveries(ctx, "wh_1", client.DeliveryFilter{Status: "failed", Before: "msg_2", Limit: 7})
	}, seen{"GET", "/webhooks/wh_1/deliveries?before=msg_2&limit=7&status=failed", "", "", "", ""}, 200, "[]", "[]"},
	{func(ctx context.Context, c *client.Client) (any, error) {
		return c.ReplayDelivery(ctx, "wh_1", "msg_1")
	}, seen{"POST", "/webhooks/wh_1/deliveries/msg_1/replay", "", "", "", ""}, 202, deliveryBody, printedDelivery},
	{func(ctx context.Context, c *client.Client) (any, error) {
		return c.ReplayFailed(ctx, "wh_1", time.Date(2026, 11, 19, 1, 0, 0, 0, time.FixedZone("", 3600)))
	}, seen{"POST", "/webhooks/wh_1/replay", `{"since":"2026-11-19T00:00:00Z"}`, "", "application/json", ""},
		202, `{"replaying":3}`, "3"},
	{func(ctx context.Context, c *client.Client) (any, error) { return c.Pull(ctx, "wh_1", 20*time.Second) },
		seen{"GET", "/webhooks/wh_1/pull?wait=20", "", "", "", ""}, 200,
		`{"deliveries":[{"id":"msg_1","headers":{"webhook-id":"msg_1"},"body":"{\"id\":1,\"name\":\"é\"}"}]}`,
		`[{msg_1 map[webhook-id:msg_1] {"id":1,"name":"é"}}]`},
	{func(ctx context.Context, c *client.Client) (any, error) { return c.Pull(ctx, "wh_1", 0) },
		seen{"GET", "/webhooks/wh_1/pull?wait=0", "", "", "", ""}, 200, `{"deliveries":[]}`, "[]"},
	{func(ctx context.Context, c *client.Client) (any, error) {
		return nil, c.Ack(ctx, "wh_1", "msg_1", "msg_2")
	}, seen{"POST", "/webhooks/wh_1/ack", `{"ids":["msg_1","msg_2"]}`, "", "application/json", ""}, 204, "", "<nil>"},
	{func(ctx context.Context, c *client.Client) (any, error) {
		return nil, c.Retry(ctx, "wh_1", 1500*time.Millisecond, "msg_1")
	}, seen{"POST", "/webhooks/wh_1/ack", `{"ids":["msg_1"],"retry_in":2}`, "", "application/json", ""}, 204, "", "<nil>"},
	{func(ctx context.Context, c *client.Client) (any, error) { return nil, c.Retry(ctx, "wh_1", 0, "msg_1") },
		seen{"POST", "/webhooks/wh_1/ack", `{"ids":["msg_1"],"retry_in":1}`, "", "application/json", ""}, 204, "", "<nil>"},
}

func TestWebhooks(t *testing.T) {
	for _, test := range webhookTests {
		for base, prefix := range map[string]string{"": "", "/a%2Fb/": "/a%2Fb"} {
			var got seen
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				got.ServeHTTP(httptest.NewRecorder(), r)
				reply(test.status, test.body)(w, r)
			}))
			want := test.want
			want.uri, want.authorization = prefix+want.uri, "Bearer "+secret
			result, err := test.call(t.Context(), dial(t, server.URL+base))
			if text := fmt.Sprint(result); err != nil || got != want || text != test.result {
				t.Errorf("sent %+v, want %+v; got %s (%v), want %s", got, want, text, err, test.result)
			}
			server.Close()
		}
	}
}

// A read is sent again after a lost connection. A change is not, and its outcome is unknown.
func TestWebhookRetries(t *testing.T) {
	for _, test := range webhookTests {
		c, s := start(t, cut, reply(test.status, test.body))
		_, err := test.call(t.Context(), c)
		reads := test.want.method == http.MethodGet
		if reads != (err == nil) || reads == errors.Is(err, client.ErrUnknown) {
			t.Errorf("%s %s after a lost connection: %v", test.want.method, test.want.uri, err)
		}
		s.wantRequests(t, map[bool]int32{false: 1, true: 2}[reads])
		for status, want := range map[int]string{404: "40403: none", 501: "50103: none"} {
			c, _ = start(t, reply(status, fmt.Sprintf(`{"error":%s,"message":"none"}`, want[:5])))
			if _, err = test.call(t.Context(), c); err == nil || err.Error() != want {
				t.Errorf("%s %s: %v, want %s", test.want.method, test.want.uri, err, want)
			}
		}
	}
}

// A response of another server is an error, so that a listener does not take it for an empty one.
func TestWebhooksNotOurs(t *testing.T) {
	for _, test := range webhookTests {
		if test.status == 204 {
			continue
		}
		c, _ := start(t, reply(test.status, `"x"`))
		_, err := test.call(t.Context(), c)
		if err == nil || !strings.HasSuffix(err.Error(), "the response is not from a Plant Store: check the base URL") {
			t.Errorf("%s %s: %v", test.want.method, test.want.uri, err)
		}
	}
	c, _ := start(t, reply(200, "{}"))
	if _, err := c.Pull(t.Context(), "wh_1", 0); err == nil {
		t.Error("Pull has no error for {}")
	}
}

// Read the events of a pull endpoint, and acknowledge each one.
func ExampleClient_Pull() {
	ctx := context.Background()
	c, err := client.New("http://127.0.0.1:8080", os.Getenv("PLANTSTORE_TOKEN"))
	if err != nil {
		log.Fatal(err)
	}
	endpoint, err := c.AddWebhook(ctx, client.Webhook{Kind: "pull", TTL: 7 * 24 * 3600})
	if err != nil {
		log.Fatal(err)
	}
	for {
		deliveries, err := c.Pull(ctx, endpoint.ID, 20*time.Second)
		if err != nil {
			log.Fatal(err)
		}
		for _, d := range deliveries {
			fmt.Println(d.ID, d.Body)
			if err := c.Ack(ctx, endpoint.ID, d.ID); err != nil {
				log.Fatal(err)
			}
		}
	}
}
