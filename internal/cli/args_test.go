package cli

import (
	"io"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// What a command takes as arguments are values of flags, in their order, of those that are not given.
func TestArgumentsAreValuesOfFlags(t *testing.T) {
	for line, want := range map[string]string{
		"generate":                        "model= prompt=",
		"generate m":                      "model=m prompt=",
		"generate m p":                    "model=m prompt=p",
		"generate --json m p":             "model=m prompt=p",
		"generate --model m p":            "model=m prompt=p",
		"generate --prompt p m":           "model=m prompt=p",
		"generate m p q":                  `unexpected argument "q": want at most MODEL and PROMPT, and quotes around text with blanks`,
		"generate --model m --prompt p q": `unexpected argument "q": want at most MODEL and PROMPT, and quotes around text with blanks`,
		"generate --model --prompt p":     "--model has no value: what follows it is --prompt",
		"chat m":                          "model=m",
		"chat --model m n":                `unexpected argument "n": want at most MODEL, and quotes around text with blanks`,
		"chat retrain":                    "model=retrain", // no command's name
		"chat train":                      `unknown command "train": did you mean training?`,
	} {
		root := commands()
		ran := ""
		for _, c := range root.Commands() {
			c.Run = func(c *cobra.Command, args []string) {
				for _, f := range arguments(c) {
					ran += f.Name + "=" + f.Value.String() + " "
				}
			}
			if c.Name() == "chat" { // an argument may also be the slip of who means the command below
				c.AddCommand(&cobra.Command{Use: "training", Run: func(*cobra.Command, []string) { ran = "training" }})
			}
		}
		_ = Explain(root)
		root.SetArgs(strings.Fields(line))
		root.SetOut(io.Discard)
		if err := root.Execute(); err != nil {
			ran = err.Error()
		}
		if got := strings.TrimSpace(ran); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}
