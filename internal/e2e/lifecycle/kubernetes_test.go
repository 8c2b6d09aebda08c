package lifecycle

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"plantstore/internal/testkit"
)

// manifests returns the objects of deploy/kubernetes.yaml as JSON.
func manifests(t *testing.T) (all [][]byte) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(testkit.DeployFile(t, "kubernetes.yaml")))
	for {
		var object map[string]any
		err := d.Decode(&object)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text)
	}
}

// kubernetesSchemas has the schema of each kind of object in the OpenAPI description of Kubernetes, which allows no
// unknown properties.
func kubernetesSchemas(t *testing.T) func(kind string) *jsonschema.Schema {
	t.Helper()
	file := filepath.Join(testkit.GoModule(t, "k8s.io/kubernetes", "v1.36.3"), "api", "openapi-spec", "swagger.json")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var description struct{ Definitions map[string]map[string]any }
	if err := json.Unmarshal(text, &description); err != nil {
		t.Fatal(err)
	}
	for _, d := range description.Definitions {
		if d["properties"] != nil && d["additionalProperties"] == nil {
			d["additionalProperties"] = false
		}
		if d["format"] == "int-or-string" {
			d["type"] = []string{"integer", "string"}
		}
		delete(d, "format")
	}
	text, err = json.Marshal(map[string]any{"definitions": description.Definitions})
	if err != nil {
		t.Fatal(err)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft4)
	if err := compiler.AddResource("kubernetes.json", document); err != nil {
		t.Fatal(err)
	}
	return func(kind string) *jsonschema.Schema {
		t.Helper()
		for name := range description.Definitions {
			if strings.HasSuffix(name, "."+kind) && strings.HasPrefix(name, "io.k8s.api.") {
				s, err := compiler.Compile("kubernetes.json#/definitions/" + name)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}
		}
		t.Fatalf("no schema for %s", kind)
		return nil
	}
}

// Every object of the manifest is valid, by the OpenAPI description of Kubernetes.
func TestKubernetesManifest(t *testing.T) {
	testkit.Long(t)
	schema := kubernetesSchemas(t)
	var kinds []string
	for _, text := range manifests(t) {
		var object struct{ APIVersion, Kind string }
		if err := json.Unmarshal(text, &object); err != nil {
			t.Fatal(err)
		}
		group, version, ok := strings.Cut(object.APIVersion, "/")
		if !ok {
			group, version = "core", object.APIVersion
		}
		group, _, _ = strings.Cut(group, ".")
		s := schema(group + "." + version + "." + object.Kind)
		kinds = append(kinds, object.Kind)
		validate := func(text []byte) error {
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			return s.Validate(value)
		}
		if err := validate(text); err != nil {
			t.Errorf("%s: %v", object.Kind, err)
		}
		// A mistake is found.
		for _, wrong := range [][2]string{{`"spec":`, `"spc":`}, {`"name":"plantstore"`, `"name":1`}} {
			if broken := bytes.Replace(text, []byte(wrong[0]), []byte(wrong[1]), 1); validate(broken) == nil {
				t.Errorf("%s: %s is accepted in place of %s", object.Kind, wrong[1], wrong[0])
			}
		}
	}
	if got := strings.Join(kinds, " "); got != "Deployment Service PodDisruptionBudget NetworkPolicy" {
		t.Errorf("objects: %s", got)
	}
}

// deployment is what the test reads of the Deployment.
type deployment struct {
	Spec struct {
		Replicas int
		Template struct {
			Metadata struct{ Annotations map[string]string }
			Spec     struct {
				TerminationGracePeriodSeconds int
				EnableServiceLinks            *bool
				Containers                    []container
			}
		}
	}
}

type container struct {
	Args  []string
	Env   []struct{ Name, Value string }
	Ports []struct {
		Name          string
		ContainerPort int
	}
	StartupProbe, LivenessProbe, ReadinessProbe struct{ HTTPGet struct{ Path, Port string } }
	Lifecycle                                   struct {
		PreStop struct{ Sleep struct{ Seconds int } }
	}
}

// The program accepts the arguments and variables of the manifest, on PostgreSQL, and its ports and probes are those
// of the manifest.
func TestKubernetesSettings(t *testing.T) {
	testkit.Long(t)
	var d deployment
	if err := json.Unmarshal(manifests(t)[0], &d); err != nil {
		t.Fatal(err)
	}
	pod := d.Spec.Template.Spec
	c := pod.Containers[0]
	if d.Spec.Replicas < 2 || pod.EnableServiceLinks == nil || *pod.EnableServiceLinks {
		t.Errorf("replicas %d, service links %v", d.Spec.Replicas, pod.EnableServiceLinks)
	}
	least := c.Lifecycle.PreStop.Sleep.Seconds + 15
	if strings.Join(c.Args, " ") != "serve --drain 10s" || pod.TerminationGracePeriodSeconds < least {
		t.Errorf("%v in a grace period of %d s", c.Args, pod.TerminationGracePeriodSeconds)
	}
	env := map[string]string{"PLANTSTORE_DB": testkit.Engines[1].Database(t), "PLANTSTORE_FIXED_TOKEN": testkit.FixedToken}
	ports := map[string]string{}
	for _, p := range c.Ports {
		ports[p.Name] = strconv.Itoa(p.ContainerPort)
	}
	for name, variable := range map[string]string{"http": "PLANTSTORE_LISTEN", "ops": "PLANTSTORE_OPS_LISTEN"} {
		for _, e := range c.Env {
			if _, port, _ := net.SplitHostPort(e.Value); e.Name == variable && port != ports[name] {
				t.Errorf("the port %s is %s, and %s is %s", name, ports[name], variable, e.Value)
			}
		}
	}
	help, _, _ := testkit.Run(t, nil, "serve", "-h")
	cmd := testkit.Serve("unused")
	cmd.Args = append(cmd.Args[:1], c.Args...)
	cmd.Env = os.Environ()
	for _, e := range c.Env {
		if !strings.Contains(help, e.Name) {
			t.Errorf("%s is not a setting", e.Name)
		}
		value := env[e.Name]
		if strings.HasSuffix(e.Name, "LISTEN") {
			value = "127.0.0.1:0"
		} else if value == "" {
			value = e.Value
		}
		cmd.Env = append(cmd.Env, e.Name+"="+value)
	}
	s := testkit.Launch(t, cmd)
	s.WaitServing()
	if s.URL != "https://plants.example" {
		t.Errorf("serves %s", s.URL)
	}
	for _, probe := range []struct{ Path, Port string }{
		c.StartupProbe.HTTPGet, c.LivenessProbe.HTTPGet, c.ReadinessProbe.HTTPGet,
	} {
		if status, body := s.Health(t, probe.Path); status != 200 || probe.Port != "ops" {
			t.Errorf("%s at %s: %d %s", probe.Path, probe.Port, status, body)
		}
	}
	scrape := d.Spec.Template.Metadata.Annotations
	status, _ := s.Health(t, scrape["prometheus.io/path"])
	if status != 200 || scrape["prometheus.io/port"] != ports["ops"] {
		t.Errorf("metrics: %d, %v", status, scrape)
	}
}
