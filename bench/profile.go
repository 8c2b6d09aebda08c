package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// profileTo loads the product on both engines, with creates and then with gets of the same plants, and writes a CPU
// profile, which the compiler uses to decide what to inline.
func (b *bench) profileTo(file string) (err error) {
	pg, err := startPostgres(b.ctx, b.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.server.stop(syscall.SIGINT)) }()
	if err := pg.blank(b.ctx, b.bin("plantstore")); err != nil {
		return err
	}
	creates := &row{conns: 64, nameBytes: 10, request: create}
	name, drop, err := pg.database(b.ctx, creates, 0)
	if err != nil {
		return err
	}
	defer drop()
	db, err := b.newDatabase(b.bin("plantstore"))
	if err != nil {
		return err
	}
	defer db.clean()
	var parts []string
	for address, token := range map[string]string{db.path: db.token, pg.url(name): pg.token} {
		b.progress.say("loading the product on %s", address)
		part := filepath.Join(b.dir, fmt.Sprintf("cpu%d.prof", len(parts)))
		parts = append(parts, part)
		p, err := start(b.ctx, nil, b.bin("variant"), "--db", address, "--cpuprofile", part)
		if err != nil {
			return err
		}
		c := &contender{api: productAPI, token: token}
		created, err := b.load(creates, c, p, b.warm, 7.5*b.seconds)
		if err == nil {
			b.stored = created.Count
			_, err = b.load(&row{conns: 64, request: get}, c, p, b.warm, 5*b.seconds)
		}
		if err := errors.Join(err, p.stop(syscall.SIGTERM)); err != nil {
			return err
		}
	}
	merged, err := command(b.ctx, nil, nil, "go", append([]string{"tool", "pprof", "-proto"}, parts...)...)
	if err != nil {
		return err
	}
	return os.WriteFile(file, merged, 0o644)
}
