package client

import (
	"path/filepath"
	"strings"
	"testing"

	"plantstore/test/testkit"
)

// Commands print what the terminal of a person needs: which token is in use, and what a refusal means.
func TestTokenShow(t *testing.T) {
	t.Parallel()
	db := filepath.Join(t.TempDir(), "plants.db")
	p := testkit.Start(t, db)
	reader := testkit.IssueToken(t, db, "--name", "reader", "--store", "shop", "--scopes", "plants:read",
		"--rate", "10/m", "--burst", "3", "--expires", "1d")
	env := []string{"PLANTSTORE_URL=" + p.URL, "PLANTSTORE_TOKEN=" + reader}
	out, errs, code := testkit.Run(t, env, "token", "show")
	lines := strings.Split(out, "\n")
	if code != 0 || errs != "" || len(lines) != 6 || lines[0] != "name     reader" || lines[1] != "store    shop" ||
		lines[2] != "scopes   plants:read" || !strings.HasPrefix(lines[3], "expires  20") ||
		lines[4] != "rate     10/m, burst 3" {
		t.Errorf("token show: exit %d\n%s%s", code, out, errs)
	}
	out, _, _ = testkit.Run(t, env, "token", "show", "--json")
	if !strings.Contains(out, `"name": "reader",`) || !strings.Contains(out, `"burst": 3`) ||
		strings.Contains(out, reader) {
		t.Errorf("token show --json: %s", out)
	}
	out, errs, code = testkit.Run(t, []string{"PLANTSTORE_URL=" + p.URL, "PLANTSTORE_TOKEN=" + p.Token}, "token", "show")
	if code != 0 || !strings.HasSuffix(out, "\nexpires  -\nrate     -\n") {
		t.Errorf("token show of the first token: exit %d\n%s%s", code, out, errs)
	}
	for args, want := range map[string]string{
		"plants create --id 1 --name x": "plantstore plants create: 40301: ", "token show --token plant_wrong": "40103: ",
	} {
		out, errs, code := testkit.Run(t, env, strings.Fields(args)...)
		if code != 6 || out != "" || !strings.Contains(errs, want) || strings.Count(errs, "\n") != 1 {
			t.Errorf("%s: exit %d, stdout %q, stderr %q; want exit 6 and %q", args, code, out, errs, want)
		}
	}
}
