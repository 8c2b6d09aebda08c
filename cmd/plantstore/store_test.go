package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore/internal/plant"
	"plantstore/internal/storage"
	"plantstore/internal/storage/sqlite"
	"plantstore/internal/storage/storagetest"
	"plantstore/internal/token"
)

// withStores creates a database with plants in several stores, one of them a sandbox, and tokens of all kinds.
func withStores(t *testing.T) (db string) {
	t.Helper()
	var all []plant.Record
	for id := range int64(1000) {
		all = append(all, storagetest.Record("shop", id-500, "Fern", "shade"))
	}
	db = fileWith(t, append(all, storagetest.Record("b-only-plants", 1, "Fern", "-"),
		storagetest.Record("sandbox:x", 1, "Fern", "-"))...)
	issue(t, db, "--name", "shop-1", "--store", "shop")
	issue(t, db, "--name", "shop-2", "--store", "shop")
	issue(t, db, "--name", "tokens", "--store", "a-only-tokens")
	issue(t, db, "--name", "other")
	for _, name := range []string{"shop-2", "other"} {
		plantstore(t, nil, "token", "revoke", "--db", db, name)
	}
	st, err := sqlite.Open(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	used := time.Date(2026, 1, 2, 5, 6, 0, 0, time.UTC)
	expired, _ := token.New("expired", "shop", token.Read, used, used)
	expired.LastUsed = used
	err = errors.Join(st.AddToken(t.Context(), expired),
		st.AddSandbox(t.Context(), storage.Sandbox{Store: "sandbox:x", Hash: token.HashOf("x")}),
		st.AddSandbox(t.Context(), storage.Sandbox{Store: "sandbox:y", Hash: token.HashOf("y")}), st.Close())
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func storeNames(t *testing.T, db string) (names []string) {
	t.Helper()
	for line := range strings.Lines(plantstore(t, nil, "store", "list", "--db", db).stdout) {
		names = append(names, strings.Fields(line)[0])
	}
	return names
}

func TestStoreList(t *testing.T) {
	db := withStores(t)
	const sandboxes = "sandboxes, which are not listed: 2\n"
	plantstore(t, nil, "store", "ls", "--db", db).want(t, "store ls", 0, ""+
		"NAME           PLANTS  TOKENS  LAST USED\n"+
		"a-only-tokens  0       1       -\n"+
		"b-only-plants  1       0       -\n"+
		"main           0       0       -\n"+
		"shop           1000    1       2026-01-02 05:06\n", sandboxes)
	got := plantstore(t, nil, "store", "list", "--db", db, "--json")
	for _, part := range []string{
		"[\n  {\n    \"name\": \"a-only-tokens\",\n    \"plants\": 0,\n    \"tokens\": 1\n  },\n",
		"    \"name\": \"shop\",\n    \"plants\": 1000,\n    \"tokens\": 1,\n" +
			"    \"lastUsed\": \"2026-01-02T05:06:00Z\"\n  }\n]\n",
	} {
		if got.code != 0 || got.stderr != sandboxes || !strings.Contains(got.stdout, part) {
			t.Errorf("store list --json: %+v, want %s", got, part)
		}
	}
	toFullDisk(t, nil, "store", "list", "--db", db)
	empty := filepath.Join(t.TempDir(), "plants.db")
	issue(t, empty, "--name", "first")
	plantstore(t, nil, "store", "list", "--db", empty).want(t, "store list without plants", 0,
		"NAME  PLANTS  TOKENS  LAST USED\nmain  0       1       -\n", "")
}

// A store is cleared in less than a second, and its tokens stay valid. An empty store is no error, an unknown one is.
func TestStoreClear(t *testing.T) {
	db := withStores(t)
	start := time.Now()
	plantstore(t, nil, "store", "clear", "--db", db, "shop").want(t, "store clear", 0, "plants removed: 1000\n", "")
	t.Logf("clearing 1000 plants took %v", time.Since(start))
	for _, name := range []string{"shop", "a-only-tokens", "main"} {
		plantstore(t, nil, "store", "clear", "--db", db, name).want(t, "clear "+name, 0, "plants removed: 0\n", "")
	}
	for _, command := range []string{"clear", "remove", "rm --yes"} {
		args := append([]string{"store"}, strings.Fields(command+" --db "+db)...)
		name := "plantstore store " + strings.Replace(args[1], "rm", "remove", 1)
		for store, want := range map[string]result{
			"Shop": {code: 3, stderr: `no such store: "Shop"; see plantstore store list`},
			"":     {code: 2, stderr: "NAME is empty; see plantstore store list"},
			"sandbox:x": {code: 2,
				stderr: "sandbox:x is a sandbox, which the service removes when it expires"},
		} {
			plantstore(t, nil, append(args, store)...).want(t, command+" "+store, want.code, "", name+": "+want.stderr+"\n")
		}
	}
	want := []string{"NAME", "a-only-tokens", "b-only-plants", "main", "shop"}
	if got := storeNames(t, db); !slices.Equal(got, want) {
		t.Errorf("the stores are %q, want %q", got, want)
	}
	if all := tokensOf(t, db); len(all) != 5 || !all[1].Valid(time.Now()) {
		t.Errorf("the tokens are %v", all)
	}
}

// A store in use is removed only with --yes, the default store never. The names of its tokens can be used again, and
// other stores and tokens stay.
func TestStoreRemove(t *testing.T) {
	db := withStores(t)
	for store, has := range map[string]string{
		"shop": "plants: 1000, valid tokens: 1", "a-only-tokens": "plants: 0, valid tokens: 1",
		"b-only-plants": "plants: 1, valid tokens: 0",
	} {
		plantstore(t, nil, "store", "remove", "--db", db, store).want(t, "remove "+store, 2, "",
			"plantstore store remove: store "+store+" is in use ("+has+"); use --yes to remove it\n")
	}
	plantstore(t, nil, "store", "remove", "--yes", "--db", db, "main").want(t, "remove main", 2, "",
		"plantstore store remove: store main can't be removed; use plantstore store clear\n")
	plantstore(t, nil, "store", "rm", "--yes", "--db", db, "shop").want(t, "remove shop", 0,
		"plants removed: 1000\ntokens removed: 3\n", "")
	all := tokensOf(t, db)
	if len(all) != 2 || all[0].Name != "tokens" || !all[0].Valid(time.Now()) || all[1].Name != "other" {
		t.Errorf("the tokens are %v", all)
	}
	start := time.Now()
	plantstore(t, nil, "token", "revoke", "--db", db, "tokens")
	plantstore(t, nil, "store", "delete", "--db", db, "a-only-tokens").want(t, "remove an unused store", 0,
		"plants removed: 0\ntokens removed: 1\n", "")
	if took := time.Since(start); took < 2*time.Second {
		t.Errorf("the store was removed %v after its token was revoked, before every process refuses it", took)
	}
	if got, want := storeNames(t, db), []string{"NAME", "b-only-plants", "main"}; !slices.Equal(got, want) {
		t.Errorf("the stores are %q, want %q", got, want)
	}
	issue(t, db, "--name", "shop-1")
}

// cleared is a database with a store of which every step may fail, and which records the calls.
type cleared struct {
	failingStore
	steps int
	fail  string
	calls []string
}

func (c *cleared) do(call string) error {
	c.calls = append(c.calls, call)
	if call == c.fail {
		c.fail = ""
		return storage.ErrBusy
	}
	return nil
}

func (c *cleared) Stores(context.Context) ([]string, error)             { return nil, c.do("stores") }
func (c *cleared) Count(context.Context, string) (int64, error)         { return 1, c.do("count") }
func (c *cleared) RevokeToken(context.Context, string, time.Time) error { return c.do("revoke") }
func (c *cleared) Tokens(context.Context) ([]token.Token, error) {
	ended := token.Token{Store: "shop", Expires: time.Now().Add(-time.Hour)}
	return []token.Token{ended, ended}, c.do("tokens")
}
func (c *cleared) PruneTokens(context.Context, string, time.Time) (int, error) {
	return 1, c.do("prune")
}
func (c *cleared) List(context.Context, string, *int64, int) ([]plant.Plant, error) {
	c.steps++
	return make([]plant.Plant, max(0, 3-c.steps)), nil
}
func (c *cleared) EditBatch(_ context.Context, edits []plant.Edit) ([]plant.Outcome, error) {
	return nil, c.do(fmt.Sprint("edits ", len(edits)))
}

// After a failure nothing more is done: plants are removed only if no token can create others.
func TestStoreRemoveFails(t *testing.T) {
	db := tempFile(t, "")
	const before = "stores tokens count tokens revoke revoke edits 2 edits 1 prune "
	for _, call := range []string{"stores", "count", "revoke", "edits 1", "prune", "none"} {
		c := &cleared{fail: call}
		got := withStorage(t, nil, c, nil, "store", "remove", "--yes", "--db", db, "shop")
		want, _, failed := strings.Cut(before, call+" ")
		if want += map[bool]string{true: call}[failed]; call == "stores" {
			want += " tokens" // both are read
		}
		calls := strings.Join(c.calls, " ")
		if calls != strings.TrimSpace(want) || (got.code == 0) == failed {
			t.Errorf("%s fails: %q, want %q; %+v", call, calls, want, got)
		}
	}
	c := &cleared{fail: "edits 1"}
	withStorage(t, nil, c, nil, "store", "clear", "--db", db, "shop").want(t, "store clear fails", 1, "",
		"plantstore store clear: "+storage.ErrBusy.Error()+"; run the same command again to continue\n")
}
