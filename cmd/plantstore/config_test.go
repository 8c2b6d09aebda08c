package main

import (
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestConfig(t *testing.T) {
	v := variables{"PLANTSTORE_QUEUE": "7", "PLANTSTORE_MAX_BODY": "8", "PLANTSTORE_FIXED_TOKEN": "Secret-1"}
	got := plantstore(t, v, "config", "--json", "--listen", ":1", "--max-body", "9",
		"--db", "postgres://u:Secret-2@h/d?password=Secret-3&sslpassword=Secret-4&sslmode=require")
	var settings []struct{ Name, Value, Source string }
	if err := json.Unmarshal([]byte(got.stdout), &settings); err != nil || got.code != 0 || got.stderr != "" {
		t.Fatalf("config: %+v, %v", got, err)
	}
	want := map[string]string{
		"db":     "postgres://u:***@h/d?password=***&sslpassword=***&sslmode=require flag",
		"listen": ":1 flag", "queue": "7 variable", "max-body": "9 flag", "ops-listen": "127.0.0.1:8081 default",
		"drain": "10s default", "default-rate": " default", "fixed token": "*** variable",
	}
	for _, s := range settings {
		if w, ok := want[s.Name]; ok && w != s.Value+" "+s.Source {
			t.Errorf("%s is %s from %s, want %s", s.Name, s.Value, s.Source, w)
		}
		delete(want, s.Name)
	}
	if len(want) > 0 || strings.Contains(got.stdout, "Secret") {
		t.Errorf("config lacks %v, or shows a secret:\n%s", want, got.stdout)
	}
	file := tempFile(t, "Secret-5")
	got = plantstore(t, variables{"PLANTSTORE_FIXED_TOKEN_FILE": file}, "config")
	if !regexp.MustCompile(`(?s)^NAME +VALUE +SOURCE\n.*\nfixed token +\*\*\* +file\n$`).MatchString(got.stdout) ||
		got.code != 0 || strings.Contains(got.stdout, "Secret") {
		t.Errorf("config with a token file: %+v", got)
	}
	url := tempFile(t, "postgres://u:Secret-6@h/d\n")
	got = plantstore(t, variables{"PLANTSTORE_DB_FILE": url}, "config")
	if !regexp.MustCompile(`\ndb +postgres://u:\*\*\*@h/d +file\n`).MatchString(got.stdout) || got.code != 0 {
		t.Errorf("config with a database file: %+v", got)
	}
	for args, want := range map[string]string{
		"--tls-cert x": "--tls-cert and --tls-key must be set together",
		"--tls-cert x --tls-key x --acme-domain a.example": "--tls-cert and --acme-domain are both set",
		"--acme-domain bad_domain!":                        "--acme-domain is ",
		"--oidc-issuer https://x":                          "--oidc-issuer and --oidc-audience must be set together",
		"--oidc-issuer x --oidc-audience a":                "--oidc-issuer ",
		"--db mysql://a/b":                                 "--db has the scheme ",
		"--db postgres://u:Secret@Secret@h/d":              "--db: the URL is invalid",
		"--db postgres:u:Secret@h/d":                       "--db is the address of a server",
		"--listen nonsense":                                `--listen is "nonsense": use an address `,
		"--listen off":                                     "--listen is ",
		"--listen :99999":                                  "--listen is ",
		"--ops-listen nonsense":                            "--ops-listen is ",
		"--base-url nonsense":                              "base URL ",
	} {
		got := plantstore(t, nil, append([]string{"config"}, strings.Fields(args)...)...)
		if got.code != 2 || !strings.HasPrefix(got.stderr, "plantstore config: "+want) ||
			strings.Contains(got.stderr, "Secret") {
			t.Errorf("config %s: %+v, want %q", args, got, want)
		}
	}
	got = plantstore(t, nil, "doctor", "--db", "user=u password=Secret")
	if got.code != 2 || !strings.Contains(got.stderr, "--db is the address of a server") ||
		strings.Contains(got.stdout+got.stderr, "Secret") {
		t.Errorf("doctor of an address that is not a URL: %+v", got)
	}
	plantstore(t, nil, "config", "--queue", "0").want(t, "what serve refuses", 2, "",
		"plantstore config: --queue is 0: use 1 or more\n")
}

func TestMaskDatabase(t *testing.T) {
	for value, want := range map[string]string{
		"plants.db":                                 "plants.db",
		"postgres://u@h:5432/d":                     "postgres://u@h:5432/d",
		"postgres://h:5432/d":                       "postgres://h:5432/d",
		"postgres://u:secret@h1:1,h2:2/d":           "postgres://u:***@h1:1,h2:2/d",
		"postgres://u:a@b@h/d":                      "postgres://u:***@h/d",
		"postgres://u:a/b?c#d@h/d":                  "***",
		"postgres://u:1/b@h/d":                      "***",
		"postgres://u:@h/d":                         "postgres://u:***@h/d",
		"postgres:///d?user=u&password=a%20b":       "postgres:///d?user=u&password=***",
		"postgres://h/d?password=s3 cr3t":           "postgres://h/d?password=***",
		"postgres://h/d?password='s3'cr3t":          "postgres://h/d?password=***",
		"postgres://h/d?pass%77ord=s3cr3t":          "postgres://h/d?pass%77ord=***",
		"postgres://h/d?sslmode=disable;password=x": "postgres://h/d?sslmode=***",
		"postgres:u:s3cr3t@h/db":                    "***",
		"postgres:s3cr3t":                           "***",
		"host=h password=secret user=u":             "***",
		"PASSWORD secret":                           "***",
	} {
		if got := maskDatabase(value); got != want {
			t.Errorf("maskDatabase(%q) = %q, want %q", value, got, want)
		}
	}
}

// An unknown variable is an error to serve and a warning to other commands. A similar one is suggested.
func TestUnknownVariables(t *testing.T) {
	for name, similar := range map[string]string{
		"PLANTSTORE_LISEN":         "; did you mean PLANTSTORE_LISTEN?",
		"PLANTSTORE_OPSLISTEN":     "; did you mean PLANTSTORE_OPS_LISTEN?",
		"PLANTSTORE_TOKENS":        "; did you mean PLANTSTORE_TOKEN?",
		"PLANTSTORE_TOKENFILE":     "; did you mean PLANTSTORE_TOKEN_FILE?",
		"PLANTSTORE_FIXEDTOKEN":    "; did you mean PLANTSTORE_FIXED_TOKEN?",
		"PLANTSTORE_listen":        "; did you mean PLANTSTORE_LISTEN?",
		"PLANTSTORE_DATABASE":      "",
		"PLANTSTORE_SERVICE":       "",
		"PLANTSTORE_PORT":          "",
		"PLANTSTORE_SERVICE_PORTX": "",
	} {
		for _, args := range []string{"serve", "config"} {
			plantstore(t, variables{name: "x"}, args).want(t, name, 2, "",
				"plantstore "+args+": unknown environment variable "+name+similar+"\n")
		}
		got := plantstore(t, variables{name: "x"}, "version")
		got.want(t, name, 0, got.stdout, "plantstore version: warning: unknown environment variable "+name+similar+"\n")
	}
	v := variables{
		"PLANTSTORE_TEST_X": "x", "PLANTSTORE_NOT_TESTED": "x", "PLANTSTORE_TYPO": "", "PLANTSTORESQUE": "x", "HOME": "x",
		"PLANTSTORE_SERVICE_HOST": "10.0.0.1", "PLANTSTORE_SERVICE_PORT": "80", "PLANTSTORE_SERVICE_PORT_HTTP": "80",
		"PLANTSTORE_PORT": "tcp://10.0.0.1:80", "PLANTSTORE_PORT_80_TCP_ADDR": "10.0.0.1",
		"PLANTSTORE_PORT_80_TCP": "tcp://10.0.0.1:80", "PLANTSTORE_OPS_SERVICE_HOST": "10.0.0.1",
		"PLANTSTORE_OPS_SERVICE_PORT": "81", "PLANTSTORE_OPS_PORT": "tcp://10.0.0.1:81",
		"PLANTSTORE_OPS_PORT_81_TCP_PORT": "81", "PLANTSTORE_DB": "x", "PLANTSTORE_TOKEN": "x", "PLANTSTORE_QUEUE": "x",
	}
	if got := plantstore(t, v, "version"); got.code != 0 || got.stderr != "" {
		t.Errorf("version with known variables: %+v", got)
	}
}

// Only connections and the server are configured by variables: others must not change what a command does.
func TestOnlySettingsHaveVariables(t *testing.T) {
	eachCommand(func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(fl *pflag.Flag) {
			for _, name := range fl.Annotations[variableKey] {
				if cmd.Name() != "serve" && cmd.Name() != "config" && !slices.Contains([]string{"PLANTSTORE_URL", "PLANTSTORE_DB",
					"PLANTSTORE_DB_FILE", "PLANTSTORE_JSON", "PLANTSTORE_TOKEN", "PLANTSTORE_TOKEN_FILE"}, name) {
					t.Errorf("%s --%s has the variable %s", cmd.CommandPath(), fl.Name, name)
				}
			}
		})
	})
	db := filepath.Join(t.TempDir(), "plants.db")
	url, _, _ := startService(t, db)
	v := variables{"PLANTSTORE_URL": url, "PLANTSTORE_TOKEN": fixedToken, "PLANTSTORE_DB": db,
		"PLANTSTORE_TAG": "oops", "PLANTSTORE_NAME": "fromenv", "PLANTSTORE_ID": "9", "PLANTSTORE_LIMIT": "1"}
	for _, test := range []struct{ args, stdout string }{
		{"plants create --id 5", ""},
		{"plants create --name Fern", ""},
		{"token issue", ""},
		{"plants create --id 5 --name Fern --json", `{"id":5,"name":"Fern"}` + "\n"},
		{"plants create --id 6 --name Oak --tag tree --json", `{"id":6,"name":"Oak","tag":"tree"}` + "\n"},
		{"plants list --json", `[{"id":5,"name":"Fern"},` + "\n" + `{"id":6,"name":"Oak","tag":"tree"}]` + "\n"},
	} {
		got := plantstore(t, v, strings.Fields(test.args)...)
		if got.stdout != test.stdout || (got.code == 2) != (test.stdout == "") ||
			!strings.Contains(got.stderr, "warning: unknown environment variable PLANTSTORE_TAG\n") {
			t.Errorf("%s: %+v, want %s", test.args, got, test.stdout)
		}
	}
}
