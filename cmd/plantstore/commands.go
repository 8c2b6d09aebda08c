package main

import (
	"context"
	_ "embed"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// commandTexts has a section for each command: its usage, its description, which starts with the summary, and examples.
//
//go:embed commands.md
var commandTexts string

// commands returns the tree of all commands, one for each section of commandTexts.
func (env environment) commands() *cobra.Command {
	handlers := map[string]func(*cobra.Command){
		"serve":          leaf(env, serve),
		"health":         leaf(env, health),
		"doctor":         leaf(env, doctor),
		"token issue":    leaf(env, tokenIssue),
		"token list":     leaf(env, tokenList),
		"token show":     calls(env, tokenShow),
		"token update":   leaf(env, tokenUpdate),
		"token rotate":   leaf(env, tokenRotate),
		"token revoke":   leaf(env, tokenRevoke),
		"plants create":  calls(env, plantsCreate),
		"plants get":     calls(env, plantsGet),
		"plants list":    calls(env, plantsList),
		"plants replace": calls(env, plantsReplace),
		"plants remove":  calls(env, plantsRemove),
		"plants import":  calls(env, plantsImport),
		"plants export":  calls(env, plantsExport),
		"copy":           leaf(env, copyDatabase),
		"backup":         leaf(env, writeBackup),
		"restore":        leaf(env, restore),
		"db status":      leaf(env, dbStatus),
		"db migrate":     leaf(env, dbMigrate),
		"db distribute":  leaf(env, dbDistribute),
		"version":        leaf(env, printVersion),
	}
	root := &cobra.Command{Version: versionText(), SilenceErrors: true, SilenceUsage: true}
	root.SetFlagErrorFunc(flagError)
	printHelp := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd.HasSubCommands() {
			cmd.RunE = nil // its usage always has a command
		}
		printHelp(cmd, args)
	})
	for _, section := range strings.Split(commandTexts, "\n#")[1:] {
		heading, text, _ := strings.Cut(section, "\n")
		if usage, ok := strings.CutPrefix(heading, "# plantstore"); ok {
			addCommand(root, usage, strings.TrimSpace(text), handlers)
		} else {
			root.AddGroup(&cobra.Group{ID: heading, Title: strings.TrimSpace(heading) + ":"})
			root.SetHelpCommandGroupID(heading)
			root.SetCompletionCommandGroupID(heading)
		}
	}
	root.InitDefaultCompletionCmd()
	completion, _, _ := root.Find([]string{"completion"})
	group(completion)
	for _, shell := range completion.Commands() {
		shell.Args = noArguments
	}
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"})
	help.Args = func(_ *cobra.Command, args []string) error {
		if parent, rest, _ := root.Find(args); len(rest) > 0 {
			return unknownCommand(parent, rest[0])
		}
		return nil
	}
	return root
}

// addCommand adds a command to the last group of the tree. A usage without words is that of the root.
func addCommand(root *cobra.Command, usage, text string, handlers map[string]func(*cobra.Command)) {
	words := strings.Fields(usage)
	n := slices.IndexFunc(append(words, "-"), func(word string) bool { return word[0] < 'a' }) // a flag or ARGUMENT
	cmd := root
	cmd.Use = "plantstore"
	if n > 0 {
		cmd = &cobra.Command{Use: strings.Join(words[n-1:], " ")}
		parent, _, _ := root.Find(words[:n-1])
		if parent == root {
			cmd.GroupID = root.Groups()[len(root.Groups())-1].ID
		}
		parent.AddCommand(cmd)
	}
	cmd.Long, cmd.Example, _ = strings.Cut(text, "\n\n    ")
	cmd.Short, _, _ = strings.Cut(cmd.Long, ".")
	if cmd.Example == "" {
		return // a help topic
	}
	cmd.Example = "  " + strings.ReplaceAll(cmd.Example, "\n    ", "\n  ")
	if handle, ok := handlers[strings.Join(words[:n], " ")]; ok {
		handle(cmd)
	} else {
		group(cmd)
	}
}

// group makes cmd a command that only groups other commands and prints its help.
func group(cmd *cobra.Command) {
	cmd.Args, cmd.DisableFlagsInUseLine = noArguments, true
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
}

func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return unknownCommand(cmd, args[0])
	}
	return nil
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

type noOptions struct{}

func (*noOptions) declare(*flags) {}

func printVersion(_ context.Context, _ *noOptions, env environment) error {
	_, err := fmt.Fprintln(env.stdout, "plantstore version", versionText())
	return err
}
