package lifecycle

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"plantstore/test/testkit"
)

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
	first, _, _ := strings.Cut(testkit.DeployFile(t, "kubernetes.yaml"), "\n---\n")
	var object any
	err := yaml.Unmarshal([]byte(first), &object)
	if text, jsonErr := json.Marshal(object); errors.Join(err, jsonErr, json.Unmarshal(text, &d)) != nil {
		t.Fatal(err, jsonErr)
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
		if probe.Port != "ops" {
			t.Errorf("%s at %s", probe.Path, probe.Port)
		}
		testkit.WaitFor(t, probe.Path, func() bool {
			status, _ := s.Health(t, probe.Path)
			return status == 200
		})
	}
	scrape := d.Spec.Template.Metadata.Annotations
	status, _ := s.Health(t, scrape["prometheus.io/path"])
	if status != 200 || scrape["prometheus.io/port"] != ports["ops"] {
		t.Errorf("metrics: %d, %v", status, scrape)
	}
}
