//go:build unix

package cli_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"talf/internal/cli"
	"talf/internal/mapped"
)

func TestAMappedFileThatIsCutShortIsAFailureNotACrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "weights")
	if err := os.WriteFile(path, make([]byte, 2*os.Getpagesize()), 0o600); err != nil {
		t.Fatal(err)
	}
	var out, errw bytes.Buffer
	code := cli.Run(&out, &errw, nil, func(context.Context, io.Writer, io.Writer) cli.Outcome {
		b, done, err := mapped.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = done() }()
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		return cli.Outcome{Command: string(b[:1])}
	})
	want := "talf: " + path + ": its bytes could not be read while it was in use: it was cut short or rewritten, or its disk failed\n"
	if code != cli.ExitFailure || errw.String() != want {
		t.Errorf("code %d, %q, want %d, %q", code, errw.String(), cli.ExitFailure, want)
	}
}
