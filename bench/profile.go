package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// profileTo drives the product on both engines and writes where its time goes, for the compiler to know
// what is worth inlining.
func (b *bench) profileTo(file string) (err error) {
	pg, err := startPostgres(b.ctx, b.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.server.stop(syscall.SIGINT)) }()
	if err := pg.blank(b.ctx, b.bin("plantstore")); err != nil {
		return err
	}
	name, drop, err := pg.copy(b.ctx)
	if err != nil {
		return err
	}
	defer drop()
	db, err := b.database(false)
	if err != nil {
		return err
	}
	defer db.clean()
	var parts []string
	for address, token := range map[string]string{db.path: db.token, pg.url(name): pg.token} {
		b.progress.say("driving the product on %s", address)
		part := filepath.Join(b.dir, fmt.Sprintf("cpu%d.prof", len(parts)))
		parts = append(parts, part)
		p, err := start(b.ctx, nil, b.bin("variant"), "--db", address, "--cpuprofile", part)
		if err != nil {
			return err
		}
		_, err = b.load(&row{conns: 64, nameBytes: 10}, &contender{path: "/plants", idName: "id", token: token}, p, 5*b.seconds)
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
