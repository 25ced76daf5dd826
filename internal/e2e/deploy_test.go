package e2e

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"talf/cmd/talf/command"
	"talf/internal/e2e/talftest"
)

// The commands in docs/deploy are accepted as written: only the files are missing.
// tools/deploycheck checks the manifests against Kubernetes, and the unit against systemd.
func TestEveryCommandOfDocsDeployIsAccepted(t *testing.T) {
	files, err := filepath.Glob("../../docs/deploy/*")
	if err != nil {
		t.Fatal(err)
	}
	commands := map[string]string{}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		switch filepath.Ext(name) {
		case ".yaml":
			var args []string
			inArgs := false
			for line := range strings.Lines(text) {
				item, ok := strings.CutPrefix(strings.TrimSpace(line), "- ")
				if inArgs = strings.TrimSpace(line) == "args:" || inArgs && ok; inArgs && ok {
					args = append(args, item)
				}
			}
			if len(args) > 0 {
				commands[name] = strings.Join(args, " ")
			}
		case ".service":
			_, after, _ := strings.Cut(text, "\nExecStart=/usr/local/bin/talf ")
			commands[name], _, _ = strings.Cut(after, "\n")
		case ".sh":
			for line := range strings.Lines(strings.ReplaceAll(text, "\\\n", " ")) {
				if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") {
					continue
				}
				if _, after, ok := strings.Cut(" "+line, " talf "); ok {
					commands[name] = strings.TrimSuffix(after, " &")
				}
			}
		}
	}
	if len(commands) != 7 {
		t.Fatalf("found %v, want a command in each of seven files", commands)
	}
	// Variables of the shell become numbers, which every flag accepts.
	vars := regexp.MustCompile(`"\$\{?\w+\}?"`)
	t.Chdir(t.TempDir())
	for name, line := range commands {
		if filepath.Ext(name) == ".yaml" {
			t.Setenv("JOB_COMPLETION_INDEX", "1")
		} else if err := os.Unsetenv("JOB_COMPLETION_INDEX"); err != nil {
			t.Fatal(err)
		}
		var errb bytes.Buffer
		code := command.Run(talftest.Words(vars.ReplaceAllString(line, "1")), strings.NewReader(""), io.Discard, &errb)
		if code != command.ExitFailure || !strings.Contains(errb.String(), "does not exist") && !strings.Contains(errb.String(), "no such file") {
			t.Errorf("%s: talf %s: exit %d\n%s", name, line, code, errb.String())
		}
	}
}
