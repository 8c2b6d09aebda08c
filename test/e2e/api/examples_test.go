package api

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"plantstore/api"
	"plantstore/internal/httpapi"
	"plantstore/internal/storage"
	"plantstore/test/testkit"
)

// The error messages that the description has as examples are those of the service.
func TestErrorExamples(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "plants.db")
	s := testkit.Start(t, db, "--sandbox", "--sandbox-rate", "1/h")
	reader := testkit.IssueToken(t, db, "--name", "reader", "--scopes", "plants:read", "--rate", "10/m", "--burst", "10")
	made := strings.Split(s.Do(t, "POST", "/sandboxes", "").Body, `"`)
	inBox := "Authorization: Bearer " + made[slices.Index(made, "token")+2]
	const monstera = `{"id":1,"name":"Monstera deliciosa","tag":"climber"}`
	jsonType := testkit.ContentJSON
	do := func(method, path, body string, headers ...string) string {
		return s.Do(t, method, path, body, headers...).Body
	}
	produced := map[int]string{40401: do("GET", "/plants/1", "")}
	testkit.WantResponse(t, "create", s.Create(t, monstera), 200, `{"name":"Monstera deliciosa","tag":"climber"}`)
	for number, body := range map[int]string{
		40009: do("POST", "/plants", `{"id":1,"name":"Fern"}`, jsonType),
		40011: do("POST", "/plants", `{"id":1}`, jsonType),
		40013: do("POST", "/plants", `{"id":"1","name":"Fern"}`, jsonType),
		40025: do("GET", "/plants/one", ""),
		40026: do("GET", "/plants?limit=0", ""),
		40028: do("PUT", "/plants/1", monstera, jsonType, "If-Match: x"),
		40030: do("GET", "/plants", "", "Expect: x"),
		40032: do("PUT", "/plants/1", `{"id":2,"name":"Fern"}`, jsonType),
		40033: do("GET", "/plants?colour=green", ""),
		40034: do("POST", "/sandboxes", `{"ttl":1}`, jsonType),
		40036: do("GET", "/plants", "", inBox, "Prefer: delay=1s"),
		40037: do("PUT", "/faults", `[{}]`, inBox, jsonType),
		40038: do("GET", "/requests?before=0", "", inBox),
		40101: do("GET", "/plants", "", "Authorization"),
		40103: do("GET", "/plants", "", "Authorization: Bearer "+s.Token[:len(s.Token)-1]),
		40301: do("POST", "/plants", monstera, jsonType, "Authorization: Bearer "+reader),
		40302: do("GET", "/faults", ""),
		41201: do("PUT", "/plants/1", monstera, jsonType, `If-Match: "x"`),
		41202: do("PUT", "/plants/1", monstera, jsonType, "If-None-Match: *"),
		42904: do("POST", "/sandboxes", ""),
		50101: do("GET", "/plants", "", inBox, "Prefer: code=501"),
		50201: do("GET", "/plants", "", inBox, "Prefer: code=502"),
		50301: string(httpapi.Refusal()),
		50302: fmt.Sprintf(`{"error":50302,"message":%q}`, storage.ErrUnknown),
		50303: fmt.Sprintf(`{"error":50303,"message":%q}`, storage.ErrUnavailable),
		50307: fmt.Sprintf(`{"error":50307,"message":%q}`, httpapi.ErrNoSandbox),
		50401: do("GET", "/plants", "", inBox, "Prefer: code=504"),
	} {
		produced[number] = body
	}
	hooks := "Authorization: Bearer " + testkit.IssueToken(t, db, "--name", "hooks", "--scopes",
		"webhooks:manage,plants:create")
	maps.Copy(produced, webhookErrors(func(method, path, body string) string {
		if body == "" {
			return do(method, path, "", hooks)
		}
		return do(method, path, body, hooks, jsonType)
	}))
	for produced[42901] == "" {
		if a := s.Do(t, "GET", "/plants/1", "", "Authorization: Bearer "+reader); a.Status == 429 {
			produced[42901] = a.Body
		}
	}
	seconds := regexp.MustCompile(`retry in \d+ s`) // depends on the time
	for number, example := range errorExamples(t) {
		if number == 50001 {
			continue // No request makes the service fail like this.
		}
		got, want := seconds.ReplaceAllString(produced[number], ""), seconds.ReplaceAllString(example, "")
		if !strings.HasSuffix(got, want) {
			t.Errorf("the example of %d is %s, but the service returns %q", number, example, produced[number])
		}
	}
}

// webhookErrors returns the errors of webhooks, by number.
func webhookErrors(do func(method, path, body string) string) map[int]string {
	id := regexp.MustCompile("wh_[0-9a-z]+").FindString(do("POST", "/webhooks", `{"kind":"pull"}`))
	do("POST", "/plants", `{"id":2,"name":"Fern"}`)
	delivery := regexp.MustCompile("msg_[0-9A-Z]+").FindString(do("GET", "/webhooks/"+id+"/deliveries", ""))
	do("POST", "/webhooks/"+id+"/deliveries/"+delivery+"/replay", "")
	produced := map[int]string{
		40039: do("PUT", "/webhooks/"+id, `{"colour":"green"}`),
		40040: do("GET", "/webhooks/"+id+"/pull?wait=-1", ""),
		40042: do("POST", "/webhooks", `{"url":"http://127.0.0.1/"}`),
		40403: do("GET", "/webhooks/wh_unknown", ""),
		40901: do("POST", "/webhooks/"+id+"/replay", `{"since":"2026-01-01T00:00:00Z"}`),
		50102: fmt.Sprintf(`{"error":50102,"message":%q}`, httpapi.ErrorOf(50102)),
	}
	for range 16 {
		produced[40041] = do("POST", "/webhooks", `{"kind":"pull"}`)
	}
	return produced
}

// errorExamples returns the bodies that the description has as examples of errors, by number.
func errorExamples(t *testing.T) map[int]string {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(api.Description("json", "http://plants.example", true)) // has all
	if err != nil {
		t.Fatal(err)
	}
	all := map[int]string{}
	for _, response := range document.Components.Responses {
		media := response.Value.Content["application/json"]
		if media == nil {
			continue
		}
		examples := []any{media.Example}
		for _, e := range media.Examples {
			examples = append(examples, e.Value.Value)
		}
		for _, example := range examples {
			if e, ok := example.(map[string]any); ok && e["error"] != nil {
				number := int(e["error"].(float64))
				all[number] = fmt.Sprintf(`{"error":%d,"message":%s`, number, quote(e["message"].(string)))
				if field, ok := e["field"].(string); ok {
					all[number] += `,"field":` + quote(field)
				}
				all[number] += "}"
			}
		}
	}
	if len(all) < 15 {
		t.Errorf("the description has examples of %d errors, want more", len(all))
	}
	return all
}
