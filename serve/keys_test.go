package serve

import (
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestKeysLetInWhoHasOne(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# the first\nalpha \n\nbeta\n")
	k, err := LoadKeys(path)
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	check := func(header, value string, want bool) {
		t.Helper()
		r := httptest.NewRequest("GET", "/", nil)
		r.Header.Set(header, value)
		name, ok := k.tenant(r)
		if ok != want {
			t.Errorf("%s: %s: let in: %v", header, value, ok)
		}
		if names[name] = true; strings.Contains(name, "a") && strings.Contains("alpha", name) {
			t.Errorf("the name %q gives the key away", name)
		}
	}
	check("Authorization", "Bearer alpha", true)
	check("authorization", "bearer  beta", true)
	check("X-Api-Key", "beta", true)
	for _, v := range []string{"", "alpha", "Bearer", "Bearer ", "Bearer alph", "Bearer # the first", "Basic alpha"} {
		check("Authorization", v, false)
	}
	if len(names) < 3 {
		t.Errorf("%d names", len(names))
	}
	for _, text := range []string{"", "# none\n", strings.Repeat("x\n", maxKeys+1)} {
		write(text)
		if _, err := LoadKeys(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%.20q: %v", text, err)
		}
	}
	// The keys of a file that is read again are the new ones; those of a bad file stay.
	write("gamma\n")
	if err := k.Reload(); err != nil {
		t.Error(err)
	}
	check("X-Api-Key", "gamma", true)
	check("X-Api-Key", "beta", false)
	write("")
	if err := k.Reload(); err == nil {
		t.Error("a file without keys is read")
	}
	check("X-Api-Key", "gamma", true)
	if k, err = OpenKeys(path, "delta"); err == nil {
		t.Error("a file without keys gives way to the one key")
	}
	if k, err = OpenKeys("", "delta"); err != nil {
		t.Fatal(err)
	}
	check("Authorization", "Bearer delta", true)
	if k, err = OpenKeys("", ""); err != nil || k != nil {
		t.Errorf("%v, %v", k, err)
	}
	check("Authorization", "", true)
}
