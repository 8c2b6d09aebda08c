package main

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func TestParseLifetime(t *testing.T) {
	const day = 24 * time.Hour
	for text, want := range map[string]time.Duration{
		"1d": day, "90d": 90 * day, "36500d": 36500 * day, "876000h": 36500 * day,
		"12h": 12 * time.Hour, "30m": 30 * time.Minute, "1s": time.Second, "1ns": 1, "+2d": 2 * day,
	} {
		if got, err := parseLifetime("expires", text, 1); got != want || err != nil {
			t.Errorf("parseLifetime(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{
		"", "d", "0d", "-1d", "0s", "-1s", "36501d", "876000h1ns", "-106752d", "106752d", "9223372036854775808d",
		"1.5d", "90", "soon", "1d12h", "1 d",
	} {
		got, err := parseLifetime("expires", text, 1)
		want := `--expires is "` + text + `": use a time such as 90d, 12h or 30m, at most 36500d`
		if got != 0 || err == nil || err.Error() != want {
			t.Errorf("parseLifetime(%q) = %v, %v, want the error %s", text, got, err, want)
		}
	}
}

// testOptions are those of the command test.
type testOptions struct {
	count    int
	name     string
	switched bool
	argument string
}

// testCommand returns a tree whose only command is test, with the options that it got when it was run.
func testCommand(env environment, withArgument bool) (root *cobra.Command, got **testOptions) {
	root, got = &cobra.Command{Use: "plantstore", SilenceErrors: true, SilenceUsage: true}, new(*testOptions)
	root.SetFlagErrorFunc(flagError)
	f, o := env.command("test", "", ""), new(testOptions)
	f.IntVar(&o.count, "max-count", 1, "`number` of things")
	f.StringVar(&o.name, "name", "default", "")
	f.BoolVar(&o.switched, "switch", false, "")
	f.Duration("wait", 0, "")
	f.VisitAll(f.sameVariable)
	f.String("none", "", "")
	f.String("renamed", "", "")
	f.variable("renamed", "PLANTSTORE_OTHER")
	if withArgument {
		f.takes("ONE", func(text string) error {
			o.argument = text
			if text == "bad" {
				return errors.New("ONE is bad")
			}
			return nil
		})
	}
	root.AddCommand(f.runs(func(context.Context) error { *got = o; return nil }))
	return root, got
}

// A flag overrides its variable, which overrides the default.
func TestParse(t *testing.T) {
	const help = "; see plantstore test --help"
	for _, test := range []struct {
		args, argument string // argument is "" for a command that has none
		v              variables
		want           testOptions
		err            string // of invalid usage
	}{
		{"", "", nil, testOptions{1, "default", false, ""}, ""},
		{"", "", variables{"PLANTSTORE_MAX_COUNT": "2", "PLANTSTORE_NAME": "x"}, testOptions{2, "x", false, ""}, ""},
		{"--max-count 3", "", variables{"PLANTSTORE_MAX_COUNT": "2"}, testOptions{3, "default", false, ""}, ""},
		{"--max-count 1", "", variables{"PLANTSTORE_MAX_COUNT": "2"}, testOptions{1, "default", false, ""}, ""},
		{"--max-count 3", "", variables{"PLANTSTORE_MAX_COUNT": "many"}, testOptions{3, "default", false, ""}, ""},
		{"--name=", "", variables{"PLANTSTORE_NAME": "x"}, testOptions{1, "", false, ""}, ""},
		{"--switch", "", nil, testOptions{1, "default", true, ""}, ""},
		{"", "", variables{"PLANTSTORE_SWITCH": "true"}, testOptions{1, "default", true, ""}, ""},
		{"--switch=false", "", variables{"PLANTSTORE_SWITCH": "true"}, testOptions{1, "default", false, ""}, ""},
		{"--name -7", "", nil, testOptions{1, "-7", false, ""}, ""},
		{"a", "ONE", nil, testOptions{1, "default", false, "a"}, ""},
		{"-7", "ONE", nil, testOptions{1, "default", false, "-7"}, ""},
		{"--switch -7 --name x", "ONE", nil, testOptions{1, "x", true, "-7"}, ""},
		{"-- --name", "ONE", nil, testOptions{1, "default", false, "--name"}, ""},
		{"a", "", nil, testOptions{}, "expected arguments: none; got: [\"a\"]" + help},
		{"", "ONE", nil, testOptions{}, "expected arguments: ONE; got: []" + help},
		{"a b", "ONE", nil, testOptions{}, "expected arguments: ONE; got: [\"a\" \"b\"]" + help},
		{"bad", "ONE", nil, testOptions{}, "ONE is bad"},
		{"--other", "", nil, testOptions{}, "unknown flag: --other" + help},
		{"-x", "", nil, testOptions{}, "unknown shorthand flag: 'x' in -x" + help},
		{"-name x", "", nil, testOptions{}, "unknown shorthand flag: 'n' in -name" + help},
		{"--name", "", nil, testOptions{}, "flag needs an argument: --name" + help},
		{"--max-count x", "", nil, testOptions{}, `--max-count is "x": use a whole number`},
		{"--wait x", "", nil, testOptions{}, `--wait is "x": use a duration such as 10s or 5m`},
		{"--switch=x", "", nil, testOptions{}, `--switch is "x": use true or false`},
		{"", "", variables{"PLANTSTORE_MAX_COUNT": "x", "PLANTSTORE_WAIT": "y"}, testOptions{},
			`PLANTSTORE_MAX_COUNT is "x": use a whole number`},
	} {
		root, got := testCommand(environment{variables: test.v}, test.argument != "")
		root.SetArgs(negativesLast(root, append([]string{"test"}, strings.Fields(test.args)...)))
		err := root.Execute()
		if test.err != "" {
			if _, ok := errors.AsType[usageError](err); !ok || err.Error() != test.err || *got != nil {
				t.Errorf("%q %v: %v, want %s", test.args, test.v, err, test.err)
			}
			continue
		}
		if err != nil || *got == nil || **got != test.want {
			t.Errorf("%q %v: %+v, %v, want %+v", test.args, test.v, *got, err, test.want)
		}
	}
}

// An unknown variable is an error to serve, also in doctor.
func TestUnknownVariables(t *testing.T) {
	for _, name := range []string{"PLANTSTORE_LISEN", "PLANTSTORE_PORT"} {
		unknown := "unknown environment variable " + name + "; see plantstore serve --help\n"
		plantstore(t, variables{name: "x"}, "serve", "--db", "/nowhere/plants.db").want(t, name, 2, "",
			"plantstore serve: "+unknown)
		got := plantstore(t, variables{name: "x"}, "doctor", "--db", "/nowhere/plants.db")
		if !strings.HasSuffix(got.stdout, "problem  settings  "+unknown) {
			t.Errorf("doctor with %s: %+v", name, got)
		}
	}
	v := variables{
		"PLANTSTORE_TEST_X": "x", "PLANTSTORE_TYPO": "", "PLANTSTORESQUE": "x", "HOME": "x",
		"PLANTSTORE_SERVICE_HOST": "10.0.0.1", "PLANTSTORE_SERVICE_PORT": "80", "PLANTSTORE_SERVICE_PORT_HTTP": "80",
		"PLANTSTORE_PORT": "tcp://10.0.0.1:80", "PLANTSTORE_PORT_80_TCP_ADDR": "10.0.0.1",
		"PLANTSTORE_PORT_80_TCP": "tcp://10.0.0.1:80", "PLANTSTORE_OPS_SERVICE_HOST": "10.0.0.1",
		"PLANTSTORE_OPS_SERVICE_PORT": "81", "PLANTSTORE_OPS_PORT": "tcp://10.0.0.1:81",
		"PLANTSTORE_OPS_PORT_81_TCP_PORT": "81", "PLANTSTORE_DB": "x", "PLANTSTORE_TOKEN": "x", "PLANTSTORE_QUEUE": "x",
		"PLANTSTORE_WEBHOOK_SECRET": "x",
	}
	got := withStorage(t, v, nil, errors.New("opened"), "serve", "--queue", "1")
	if got.code != 1 || !strings.HasSuffix(got.stderr, "plantstore serve: opened\n") {
		t.Errorf("serve with known variables: %+v", got)
	}
}

// Only connections and the server are configured by variables: others must not change what a command does.
func TestOnlySettingsHaveVariables(t *testing.T) {
	eachCommand(func(cmd *cobra.Command) {
		cmd.Flags().VisitAll(func(fl *pflag.Flag) {
			for _, name := range fl.Annotations[variableKey] {
				if cmd.Name() != "serve" && !slices.Contains([]string{"PLANTSTORE_URL", "PLANTSTORE_DB", "PLANTSTORE_DB_FILE",
					"PLANTSTORE_JSON", "PLANTSTORE_TOKEN", "PLANTSTORE_TOKEN_FILE", "PLANTSTORE_WEBHOOK_SECRET"}, name) {
					t.Errorf("%s --%s has the variable %s", cmd.CommandPath(), fl.Name, name)
				}
			}
		})
	})
}

// A file with the URL of a database that can't be used is reported, and so is a second setting. A flag overrides it.
func TestDatabaseFile(t *testing.T) {
	empty, db := tempFile(t, "\n"), filepath.Join(t.TempDir(), "plants.db")
	issue(t, db, "--name", "ci")
	for _, test := range []struct {
		v      variables
		args   string
		code   int
		stderr string
	}{
		{variables{"PLANTSTORE_DB_FILE": "/absent"}, "", 1, ": PLANTSTORE_DB_FILE: open /absent: no such file"},
		{variables{"PLANTSTORE_DB_FILE": empty}, "", 1, ": PLANTSTORE_DB_FILE: the file " + empty + " is empty"},
		{variables{"PLANTSTORE_DB_FILE": empty, "PLANTSTORE_DB": "x"}, "", 2,
			": PLANTSTORE_DB and PLANTSTORE_DB_FILE are both set"},
		{variables{"PLANTSTORE_DB_FILE": tempFile(t, db+"\n")}, "", 0, ""},
		{variables{"PLANTSTORE_DB_FILE": "/absent"}, "--db " + db, 0, ""},
	} {
		got := plantstore(t, test.v, append([]string{"token", "list"}, strings.Fields(test.args)...)...)
		if got.code != test.code || !strings.HasPrefix(strings.TrimPrefix(got.stderr, "plantstore token list"), test.stderr) {
			t.Errorf("%v %s: %+v, want %d and %q", test.v, test.args, got, test.code, test.stderr)
		}
	}
}
