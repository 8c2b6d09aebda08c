package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/internal/httpapi"
	"plantstore/internal/rate"
	"plantstore/internal/server"
	"plantstore/internal/storage"
	"plantstore/test/testkit"
	"plantstore/test/testkit/missing"
)

// parseServe parses the flags of serve.
func parseServe(v variables, args ...string) (cfg server.Config, db string, unsafe bool, err error) {
	env := environment{variables: v}
	var o serveOptions
	f := env.command("serve", "", "")
	o.declare(f)
	cmd := f.runs(func(context.Context) (err error) {
		cfg, err = o.config(env)
		return err
	})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetArgs(append([]string{}, args...))
	err = cmd.Execute()
	return cfg, *o.db, o.unsafe, err
}

func TestServeFlags(t *testing.T) {
	cfg, db, unsafe, err := parseServe(variables{"PLANTSTORE_FIXED_TOKEN": "ignored"},
		"--db", "x.db", "--unsafe-durability",
		"--listen", ":1", "--ops-listen", "off", "--base-url", "https://plants.example/api", "--drain", "0s",
		"--max-body", "7", "--queue", "8", "--max-conns", "9",
		"--access-log", "all", "--cors-origins", "off",
		"--default-rate", "5/s", "--default-burst", "6", "--trusted-proxies", "10.0.0.1",
		"--token-file", tempFile(t, "from-a-file\n"))
	if err != nil || db != "x.db" || !unsafe || cfg.Listen != ":1" || cfg.OpsListen != "off" ||
		cfg.BaseURL != "https://plants.example/api" || cfg.Drain != 0 || cfg.MaxBody != 7 || cfg.Commit.Queue != 8 ||
		cfg.MaxConns != 9 || cfg.AccessLog != httpapi.LogAll || cfg.Token != "from-a-file" ||
		cfg.Rate != (rate.Limit{Count: 5, Per: time.Second, Burst: 6}) || len(cfg.Proxies) != 1 {
		t.Errorf("serve with every flag: %+v, db %q, unsafe %v, %v", cfg, db, unsafe, err)
	}
	if none, _ := httpapi.ParseOrigins("off"); !reflect.DeepEqual(cfg.Origins, none) {
		t.Errorf("the origins are %+v, want none", cfg.Origins)
	}
	cfg, _, _, err = parseServe(variables{"PLANTSTORE_FIXED_TOKEN": "from-the-environment", "PLANTSTORE_QUEUE": "5"})
	if err != nil || cfg.Token != "from-the-environment" || cfg.Commit.Queue != 5 {
		t.Errorf("serve with variables: %+v, %v", cfg, err)
	}
	file := tempFile(t, "of-a-client")
	cfg, _, _, err = parseServe(variables{"PLANTSTORE_TOKEN": "of-a-client", "PLANTSTORE_TOKEN_FILE": file})
	if err != nil || cfg.Token != "" {
		t.Errorf("serve with the variables of clients: %+v, %v", cfg, err)
	}
}

// serve refuses a wrong value before it opens the database, and no message has the password of one.
func TestServeRefuses(t *testing.T) {
	for args, want := range map[string]string{
		"--tls-cert x": "--tls-cert and --tls-key must be set together",
		"--tls-cert x --tls-key x --acme-domain a.example":  "--tls-cert and --acme-domain are both set",
		"--acme-domain bad_domain!":                         "--acme-domain is ",
		"--acme-domain plants":                              "--acme-domain is ",
		"--acme-domain 127.0.0.1":                           "--acme-domain is ",
		"--acme-domain *.a.example":                         "--acme-domain is ",
		"--acme-domain a..example":                          "--acme-domain is ",
		"--acme-email a@b.example":                          "--acme-email, --acme-cache and --acme-directory need ",
		"--acme-directory https://b":                        "--acme-email, --acme-cache and --acme-directory need ",
		"--acme-domain a.example --acme-directory http://b": "--acme-directory is ",
		"--oidc-issuer https://x":                           "--oidc-issuer and --oidc-audience must be set together",
		"--oidc-audience x":                                 "--oidc-issuer and --oidc-audience must be set together",
		"--oidc-store-claim x":                              "--oidc-issuer and --oidc-audience must be set together",
		"--oidc-issuer x --oidc-audience a":                 "--oidc-issuer ",
		"--db mysql://a/b":                                  "--db has the scheme ",
		"--db postgres://u:Secret@Secret@h/d":               "--db: the URL is invalid",
		"--db postgres:u:Secret@h/d":                        "--db is the address of a server",
		"--listen nonsense":                                 `--listen is "nonsense": use an address `,
		"--listen off":                                      "--listen is ",
		"--listen :99999":                                   "--listen is ",
		"--ops-listen nonsense":                             "--ops-listen is ",
		"--base-url nonsense":                               "base URL ",
		"--listen=":                                         `--listen is "": use an address such as 127.0.0.1:8080`,
		"--max-body 0":                                      "--max-body is 0: use 1 to 67108864\n",
		"--max-body 67108865":                               "--max-body is 67108865: use 1 to 67108864\n",
		"--queue 0":                                         "--queue is 0: use 1 or more\n",
		"--max-conns=-1":                                    "--max-conns is -1: use 0 to 1000000\n",
		"--max-conns 1000001":                               "--max-conns is 1000001: use 0 to 1000000\n",
		"--drain=-1ns":                                      "--drain is -1ns: use 0 or more\n",
		"--access-log some":                                 `--access-log is "some": use errors, all or off`,
		"--cors-origins some":                               `--cors-origins has "some": use origins such as `,
		"--default-rate some":                               `rate "some"`,
		"--trusted-proxies so":                              `--trusted-proxies has "so": use addresses `,
		"extra":                                             "expected arguments: none; got: [\"extra\"]",
	} {
		got := withStorage(t, nil, nil, errors.New("opened"), append([]string{"serve"}, strings.Fields(args)...)...)
		if got.code != 2 || !strings.HasPrefix(got.stderr, "plantstore serve: "+want) ||
			strings.Contains(got.stdout+got.stderr, "Secret") {
			t.Errorf("serve %s: %+v, want %q", args, got, want)
		}
	}
	for _, ok := range []string{
		"--max-body=1", "--max-body=67108864", "--queue=1", "--max-conns=0", "--max-conns=1000000", "--drain=0s",
	} {
		if got := withStorage(t, nil, nil, errors.New("opened"), "serve", ok); !strings.HasSuffix(got.stderr, ": opened\n") {
			t.Errorf("serve %s: %+v", ok, got)
		}
	}
	plantstore(t, nil, "serve", "--token-file=/nowhere").want(t, "a missing token file", 1, "",
		"plantstore serve: --token-file: open /nowhere: no such file or directory\n")
	got := plantstore(t, nil, "doctor", "--db", "user=u password=Secret")
	if got.code != 2 || !strings.Contains(got.stderr, "--db is the address of a server") ||
		strings.Contains(got.stdout+got.stderr, "Secret") {
		t.Errorf("doctor of an address that is not a URL: %+v", got)
	}
}

const fixedToken = "a-fixed-token-of-the-tests"

// startService runs serve in this process and returns its base URL and its log. stop ends it and returns its
// exit code.
func startService(t *testing.T, db string) (url string, log *testkit.Output, stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	stdout, log, code := new(testkit.Output), new(testkit.Output), make(chan int, 1)
	go func() {
		env := environment{stdout, log, variables{"PLANTSTORE_FIXED_TOKEN": fixedToken}, openStorage}
		code <- env.run(ctx, []string{"serve", "--db", db, "--listen", "127.0.0.1:0", "--ops-listen", "off"})
	}()
	stop = sync.OnceValue(func() int { cancel(); return <-code })
	t.Cleanup(func() { stop() })
	address := regexp.MustCompile(`http://\S+`)
	for deadline := time.Now().Add(30 * time.Second); !address.MatchString(stdout.String()); {
		if time.Now().After(deadline) {
			t.Fatalf("serve is not ready after 30 s:\n%s%s", stdout, log)
		}
		time.Sleep(time.Millisecond)
	}
	return address.FindString(stdout.String()), log, stop
}

func TestServeWarnsOfMemory(t *testing.T) {
	folder, err := os.MkdirTemp("/dev/shm", "plantstore-test")
	if err != nil {
		missing.Report(t, "a file in memory: %v", err)
	}
	defer os.RemoveAll(folder)
	_, log, stop := startService(t, filepath.Join(folder, "plants.db"))
	stop()
	if !strings.Contains(log.String(), `"msg":"the database is on an in-memory file system`) {
		t.Errorf("no warning about a file in memory:\n%s", log)
	}
}

// A start that fails is an error, unless the only reason is the signal to stop.
func TestServeStartFails(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	for _, test := range []struct {
		what    string
		ctx     context.Context
		openErr error
		err     error // of the store once it is open
		code    int
		closed  int
		stderr  string
	}{
		{"the database is unavailable", t.Context(), storage.ErrUnavailable, nil, 1, 0, storage.ErrUnavailable.Error()},
		{"canceled without a signal", t.Context(), context.Canceled, nil, 1, 0, "context canceled"},
		{"stopped while opening", stopped, context.Canceled, nil, 0, 0, "context canceled before the service was ready"},
		{"failed while stopping", stopped, storage.ErrUnavailable, nil, 1, 0, storage.ErrUnavailable.Error()},
		{"stopped while starting", stopped, nil, context.Canceled, 0, 1, "context canceled before the service was ready"},
		{"failed after opening", t.Context(), nil, storage.ErrFull, 1, 1, storage.ErrFull.Error()},
	} {
		var stdout, stderr bytes.Buffer
		st := &failingStore{err: test.err}
		unsafe := false
		env := environment{&stdout, &stderr, nil,
			func(_ context.Context, db string, _ access, u bool) (storage.Storage, error) {
				unsafe = u
				return st, test.openErr
			}}
		code := env.run(test.ctx, []string{"serve", "--listen", "127.0.0.1:0", "--ops-listen", "off", "--unsafe-durability"})
		if code != test.code || !strings.Contains(stderr.String(), test.stderr) || st.closed != test.closed || !unsafe {
			t.Errorf("%s: exit %d, closed %d times, unsafe %v\n%s", test.what, code, st.closed, unsafe, stderr.String())
		}
	}
}
