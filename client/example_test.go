package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"plantstore/client"
)

// Create, read, replace and remove a plant. The ETag makes sure that no other client has changed it in
// between.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := client.New("http://127.0.0.1:8080", os.Getenv("PLANTSTORE_TOKEN"))
	if err != nil {
		log.Fatal(err)
	}
	tag := "climber"
	_, err = c.Create(ctx, client.NewPlant{ID: 1, Plant: client.Plant{Name: "Monstera deliciosa", Tag: &tag}})
	if e, ok := errors.AsType[*client.Error](err); ok && e.Number == 40009 {
		log.Fatal("id 1 belongs to a different plant")
	} else if errors.Is(err, client.ErrUnknown) {
		log.Fatal("plant 1 may have been stored; creating it again is safe: ", err)
	} else if err != nil {
		log.Fatal(err)
	}
	seen, err := c.Get(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	changed, err := c.Replace(ctx, 1, client.Plant{Name: "Monstera adansonii"}, seen.ETag)
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Remove(ctx, 1, changed.ETag); err != nil {
		log.Fatal(err)
	}
}

// List the climbers whose name or tag contains "monstera", ignoring case. The zero Page lists all plants.
func ExampleClient_Plants() {
	c, err := client.New("http://127.0.0.1:8080", os.Getenv("PLANTSTORE_TOKEN"))
	if err != nil {
		log.Fatal(err)
	}
	tag := "climber"
	for p, err := range c.Plants(context.Background(), client.Page{Tag: &tag, Text: "monstera"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(p.ID, p.Name)
	}
}
