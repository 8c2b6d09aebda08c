package sandbox

import (
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"plantstore/internal/httpapi"
	"plantstore/internal/plant"
)

// seeds are the plants that sandboxes start with, by the name of the seed. Plant 1 is that of the examples in the
// description.
var seeds = map[string][]plant.Plant{
	"empty": nil,
	"garden": {
		seeded(1, "Monstera deliciosa", "climber"),
		seeded(2, "Ficus lyrata", "tree"),
		seeded(3, "Aloe vera", "succulent"),
		seeded(4, "Asplenium nidus", "fern"),
		seeded(5, "Lavandula angustifolia", "herb"),
		seeded(6, "Ocimum basilicum", "herb"),
		seeded(7, "Acer palmatum", "tree"),
		seeded(8, "Echeveria elegans", "succulent"),
		seeded(9, "Hedera helix", "climber"),
		seeded(10, "Phalaenopsis amabilis", "orchid"),
		seeded(11, "Olea europaea", "tree"),
		{ID: 12, Content: plant.Content{Name: "Seedling without a tag"}},
	},
}

func seeded(id int64, name, tag string) plant.Plant {
	return plant.Plant{ID: id, Content: plant.Content{Name: name, Tag: &tag}}
}

// sizeOf returns how many plants there are, and the length of their names and tags.
func sizeOf(plants []plant.Plant) (n, bytes int64) {
	for _, p := range plants {
		bytes += int64(p.Size())
	}
	return int64(len(plants)), bytes
}

// decodeOptions decodes the body of a new sandbox, which may be empty. The client has no token, so the message repeats
// nothing of it.
func decodeOptions(body []byte) (seed string, ttl time.Duration, err error) {
	sent, seconds := members{}, 3600
	if len(body) > 0 && (json.Unmarshal(body, &sent) != nil || sent == nil) {
		return "", 0, httpapi.Failf(httpapi.ErrSandboxBody, "the body must be empty or a JSON object")
	}
	seed = "garden"
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		var problem string
		switch name {
		case "seed":
			seed, problem = word(sent[name], "garden", "empty")
		case "ttl":
			seconds, problem = integer(sent[name], 60, 86_400)
		default:
			return "", 0, httpapi.Failf(httpapi.ErrSandboxBody, "a member of the body is unknown; use seed and ttl")
		}
		if problem != "" {
			return "", 0, httpapi.FailField(httpapi.ErrSandboxBody, name, "%s", problem)
		}
	}
	return seed, time.Duration(seconds) * time.Second, nil
}
