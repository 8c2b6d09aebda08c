// Command pocketbase serves a plants collection of PocketBase with its default settings.
package main

import (
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/pocketbase/pocketbase"
	"github.com/pocketbase/pocketbase/apis"
	"github.com/pocketbase/pocketbase/core"
	"github.com/pocketbase/pocketbase/tools/types"
)

func main() {
	dir := flag.String("dir", "pb_data", "the data folder")
	prepare := flag.Bool("prepare", false, "make the collection and an account, print its token, and end")
	quiet := flag.Bool("quiet", false, "with --prepare: turn the request log off, which is on by default")
	flag.Parse()
	app := pocketbase.NewWithConfig(pocketbase.Config{DefaultDataDir: *dir, HideStartBanner: true})
	if err := app.Bootstrap(); err != nil {
		log.Fatal(err)
	}
	var err error
	if *prepare {
		err = setUp(app, *quiet, os.Stdout)
	} else {
		err = serve(app)
	}
	if err := app.ResetBootstrapState(); err != nil {
		log.Print(err)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func setUp(app core.App, quiet bool, out io.Writer) error {
	if err := app.RunAllMigrations(); err != nil {
		return err
	}
	if quiet {
		app.Settings().Logs.MaxDays = 0
		if err := app.Save(app.Settings()); err != nil {
			return err
		}
	}
	plants := core.NewBaseCollection("plants")
	signedIn := types.Pointer(`@request.auth.id != ""`)
	plants.CreateRule, plants.ViewRule, plants.ListRule = signedIn, signedIn, signedIn
	plants.Fields.Add(
		&core.NumberField{Name: "plant_id", Required: true, OnlyInt: true},
		&core.TextField{Name: "name", Required: true, Max: 64 << 10},
		&core.TextField{Name: "tag"},
	)
	plants.AddIndex("plants_plant_id", true, "plant_id", "")
	if err := app.Save(plants); err != nil {
		return err
	}
	users, err := app.FindCollectionByNameOrId("users")
	if err != nil {
		return err
	}
	user := core.NewRecord(users)
	user.SetEmail("bench@plants.example")
	user.SetPassword("only-for-this-run")
	if err := app.Save(user); err != nil {
		return err
	}
	token, err := user.NewAuthToken()
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(out, token)
	return err
}

func serve(app core.App) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	app.OnServe().BindFunc(func(e *core.ServeEvent) error {
		e.Listener, e.InstallerFunc = l, nil
		fmt.Printf("PocketBase serves http://%s\n", l.Addr())
		return e.Next()
	})
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGINT, syscall.SIGTERM)
	failed := make(chan error, 1)
	go func() { failed <- apis.Serve(app, apis.ServeConfig{HttpAddr: "127.0.0.1:0"}) }()
	select {
	case err := <-failed:
		return err
	case <-ended:
	}
	return app.OnTerminate().Trigger(&core.TerminateEvent{App: app}, func(*core.TerminateEvent) error { return nil })
}
