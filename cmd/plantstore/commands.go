package main

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
)

func (env environment) commands() *cobra.Command {
	root := &cobra.Command{
		Use: "plantstore", Version: versionText(), SilenceErrors: true, SilenceUsage: true,
		Long: `Plant Store stores plants durably: a create is on disk before its response is sent.

All flags of serve can be set in the environment: --base-url is PLANTSTORE_BASE_URL. Other commands
have variables for --url, --token, --token-file, --secret, --db and --json. A flag on the command
line overrides its variable. An unknown PLANTSTORE_ variable is an error to serve.

The exit code is 0 after a success, 2 if the command line is wrong, 3 if a plant, a token, a store
or a webhook was not found, 4 for a conflict, 5 if the service did not respond, 6 if it refused the
token, and 1 after any other failure or if the outcome is unknown. With --json, an error is one line
of JSON.`,
		Example: `  plantstore serve
  plantstore token issue --name laptop
  plantstore plants list`,
	}
	printHelpOnly(root)
	root.SetFlagErrorFunc(flagError)
	add := func(title string, commands ...*cobra.Command) {
		root.AddGroup(&cobra.Group{ID: title, Title: title + ":"})
		for _, cmd := range commands {
			cmd.GroupID = title
			root.AddCommand(cmd)
		}
	}
	add("Run the service", serveCommand(env), sandboxCommand(env), healthCommand(env), doctorCommand(env))
	add("Use the service", tokenCommands(env), storeCommands(env), plantsCommands(env),
		webhookCommands(env), listenCommand(env), conformCommand(env))
	add("Manage databases", copyCommand(env), backupCommand(env), restoreCommand(env), dbCommands(env))
	add("Other commands", versionCommand(env))
	root.SetHelpCommandGroupID("Other commands")
	root.SetCompletionCommandGroupID("Other commands")
	return root
}

// newCommand returns a command with its texts. The first sentence of the description is its summary.
func newCommand(use, description, examples string) *cobra.Command {
	cmd := &cobra.Command{Use: use, Long: strings.Trim(description, "\n"), Example: strings.Trim(examples, "\n")}
	cmd.Short, _, _ = strings.Cut(cmd.Long, ".")
	cmd.Aliases = map[string][]string{"list": {"ls"}, "remove": {"delete", "rm"}}[cmd.Name()]
	return cmd
}

// group returns a command that only groups others and prints its help.
func group(use, description, examples string, commands ...*cobra.Command) *cobra.Command {
	cmd := newCommand(use, description, examples)
	printHelpOnly(cmd)
	cmd.AddCommand(commands...)
	return cmd
}

func printHelpOnly(cmd *cobra.Command) {
	cmd.DisableFlagsInUseLine = true
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return unknownCommand(cmd, args[0])
		}
		return nil
	}
}

func versionName() string {
	if info, ok := debug.ReadBuildInfo(); ok && version == "" {
		return info.Main.Version
	}
	return version
}

func versionText() string {
	return fmt.Sprintf("%s %s %s/%s", versionName(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func versionCommand(env environment) *cobra.Command {
	return env.command("version", `
Print the version.`, `
  plantstore version`).runs(func(context.Context) error {
		_, err := fmt.Fprintln(env.stdout, "plantstore version", versionText())
		return err
	})
}
