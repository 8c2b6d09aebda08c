package main

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"plantstore/internal/telemetry"
)

type configOptions struct {
	serveOptions
	json  bool
	flags *flags
}

func (o *configOptions) declare(f *flags) {
	o.serveOptions.declare(f)
	o.flags = f
	f.BoolVar(&o.json, "json", false, "print JSON, and errors as JSON")
}

// printConfig prints the settings that serve would have with the same flags and variables.
func printConfig(_ context.Context, o *configOptions, env environment) error {
	cfg, err := o.config(env)
	_, oidcErr := o.oidc.config()
	if err = cmp.Or(err, o.tls.check(), oidcErr); err != nil {
		return err
	}
	type setting struct {
		Name   string `json:"name"`
		Value  string `json:"value"`
		Source string `json:"source"`
	}
	var all []setting
	o.flags.VisitAll(func(fl *pflag.Flag) {
		if fl.Annotations[variableKey] != nil && fl.Name != "json" {
			value := passwordInUser.ReplaceAllString(fl.Value.String(), "$1:***@")
			if fl.Name == "db" {
				value = maskDatabase(fl.Value.String())
			}
			all = append(all, setting{fl.Name, value, o.flags.source(fl)})
		}
	})
	if cfg.Token != "" {
		fixed := setting{"fixed token", "***", "file"}
		if cfg.TokenFrom == fixedTokenVariable {
			fixed.Source = "variable"
		}
		all = append(all, fixed)
	}
	if o.json {
		return env.printJSON(all)
	}
	w := env.table(env.stdout, 1)
	fmt.Fprintln(w, "NAME\tVALUE\tSOURCE")
	for _, s := range all {
		fmt.Fprintf(w, "%s\t%s\t%s\n", s.Name, cell(s.Value), s.Source)
	}
	return w.Flush()
}

// source returns where the value of a flag is from.
func (f *flags) source(fl *pflag.Flag) string {
	if fl.Changed {
		return "flag"
	}
	for i, variable := range fl.Annotations[variableKey] {
		if f.env.getenv(variable) != "" {
			return []string{"variable", "file"}[i]
		}
	}
	return "default"
}

var (
	passwordInUser = regexp.MustCompile(`(://[^:/?#]*):.*@`)
	maybeAddress   = regexp.MustCompile(`(?i)^postgres(ql)?:|://|passw|[@=]`)
	shownSettings  = regexp.MustCompile(`^(host|port|user|dbname|sslmode|sslrootcert|target_session_attrs|` +
		`connect_timeout|application_name|synchronous_commit|(statement|lock)_timeout|pool_\w+)=[\w.,:/%-]*$`)
)

// maskDatabase replaces what may be secret in a value of --db: all but the path of a file, or of a URL its user, hosts,
// database and the settings that are known to be no secrets.
func maskDatabase(db string) string {
	if !maybeAddress.MatchString(db) {
		return db
	}
	u, err := url.Parse(db)
	if err != nil || u.Host == "" && u.Path == "" || u.Opaque != "" || u.Fragment != "" || !isURL(db) ||
		strings.Contains(u.Path+u.RawQuery, "@") {
		return "***"
	}
	user := ""
	if u.User != nil {
		user = url.User(u.User.Username()).String() + "@"
		if _, ok := u.User.Password(); ok {
			user = strings.TrimSuffix(user, "@") + ":***@"
		}
	}
	shown := u.Scheme + "://" + user + u.Host + u.EscapedPath()
	for i, setting := range strings.Split(u.RawQuery, "&") {
		if !shownSettings.MatchString(setting) && setting != "" {
			name, _, _ := strings.Cut(setting, "=")
			setting = name + "=***"
		}
		shown += []string{"?", "&"}[min(i, 1)] + setting
	}
	return strings.TrimSuffix(shown, "?")
}

// otherVariables match variables that are not settings: those of tests, and those that Kubernetes sets for Services
// whose names are plantstore or start with plantstore-.
var otherVariables = regexp.MustCompile(`^PLANTSTORE_(TEST_.*|NOT_TESTED=.*|` +
	`([A-Z0-9_]+_)?(SERVICE_(HOST|PORT(_[A-Z0-9_]+)?)=.*|` +
	`PORT(_\d+_(TCP|UDP|SCTP))?=(tcp|udp|sctp)://.*|PORT_\d+_(TCP|UDP|SCTP)_(PROTO|PORT|ADDR)=.*))$`)

// checkVariables reports an unknown variable, probably a mistyped one: as an error to serve, which would not have the
// settings that the operator wanted, and as a warning to other commands.
func (env environment) checkVariables(cmd *cobra.Command) error {
	known := []string{fixedTokenVariable, tokenVariable, tokenVariable + "_FILE", "PLANTSTORE_URL", "PLANTSTORE_JSON"}
	serve, _, _ := cmd.Root().Find([]string{"serve"})
	serve.Flags().VisitAll(func(fl *pflag.Flag) { known = append(known, fl.Annotations[variableKey]...) })
	for _, variable := range env.environ {
		name, value, _ := strings.Cut(variable, "=")
		isKnown := slices.Contains(known, name) || otherVariables.MatchString(variable)
		if !strings.HasPrefix(name, "PLANTSTORE_") || value == "" || isKnown {
			continue
		}
		err := usagef("unknown environment variable %s", name)
		if similar := nearest(name, new(cobra.Command), known...); similar != "" {
			err = usagef("%w; did you mean %s?", err, similar)
		}
		if cmd.Name() == "serve" || cmd.Name() == "config" {
			return err
		}
		fmt.Fprintf(env.stderr, "%s: warning: %s\n", cmd.CommandPath(), telemetry.Escape(err.Error()))
	}
	return nil
}

// nearest returns the command of parent that is the most similar to a name, or "" if none is. Names of other things are
// added to it as commands, to use the distance of cobra.
func nearest(name string, parent *cobra.Command, names ...string) string {
	for _, n := range names {
		parent.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	for parent.SuggestionsMinimumDistance = range 3 {
		for _, similar := range parent.SuggestionsFor(name) {
			if strings.HasPrefix(strings.ToLower(name), strings.ToLower(similar[:1])) {
				return similar
			}
		}
	}
	return ""
}
