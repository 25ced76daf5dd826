package mapped_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"talf/internal/mapped"
)

func rssFile(t *testing.T) (kib int) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), "RssFile:")
	if _, err := fmt.Sscan(rest, &kib); !ok || err != nil {
		t.Skip("the system does not say which pages are of files")
	}
	return kib
}

var written = fmt.Sprint(os.Args)

func TestTheProgramGoesOnWithoutItsPages(t *testing.T) {
	before := rssFile(t)
	mapped.ReleaseProgram()
	after := rssFile(t)
	if after >= before {
		t.Errorf("%d KiB of files before, %d after", before, after)
	}
	// Pages that were written to stay.
	if written != fmt.Sprint(os.Args) {
		t.Error("a variable has changed")
	}
	t.Run("again", func(t *testing.T) { mapped.ReleaseProgram() })
}
