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

// A plant is created, read, changed where nobody else has changed it, and removed.
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
		log.Fatal("plant 1 is another one")
	} else if errors.Is(err, client.ErrUnknown) {
		log.Fatal("plant 1 may be stored: to create it again is safe, and tells: ", err)
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

func ExampleClient_Plants() {
	c, err := client.New("http://127.0.0.1:8080", os.Getenv("PLANTSTORE_TOKEN"))
	if err != nil {
		log.Fatal(err)
	}
	for p, err := range c.Plants(context.Background(), client.Page{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(p.ID, p.Name)
	}
}
