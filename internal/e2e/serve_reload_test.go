package e2e

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"talf/cmd/talf/command"
	"talf/internal/await"
	"talf/internal/e2e/talftest"
)

// find waits for a match of an expression.
func find(t *testing.T, log *talftest.Log, expr string) string {
	t.Helper()
	re := regexp.MustCompile(expr)
	await.Until(t, expr+" in the log", func() bool { return re.MatchString(log.String()) })
	return re.FindString(log.String())
}

// A server that a file configures reads its keys again at SIGHUP. A bad file of keys changes
// nothing, and neither ends the server. A flag wins over the file.
func TestAServerReloadsItsKeys(t *testing.T) {
	talftest.Interrupts(t)
	talftest.HangsUp(t)
	dir := t.TempDir()
	keys := talftest.Write(t, filepath.Join(dir, "keys"), "first\n")
	config := talftest.Write(t, filepath.Join(dir, "serve.yaml"), "model: "+talftest.TinyModel(t, talftest.TinyConfig(), 1)+`
listen: 256.0.0.1:0 # no address
method: [goose:N=8, "salf:N=4,th=0.5"]
served-model-name: [tiny, small]
max-running: 2
api-key-file: `+keys+"\n")
	headless := talftest.Run(t, "", "serve", "--config", config, "--listen", "127.0.0.1:0")
	headless.Refuses(t, command.ExitUsage, "draft model") // of salf: the file's methods are read
	edited, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	talftest.Write(t, config, strings.Replace(string(edited), `, "salf:N=4,th=0.5"`, "", 1))
	c := talftest.Command(t, "serve", "--config", config, "--listen", "127.0.0.1:0")
	var log talftest.Log
	c.Stderr = &log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	url := find(t, &log, "http://[0-9.:]+/v1")
	status := func(key string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "GET", url+"/models/small", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	hangUp := func() {
		t.Helper()
		if err := c.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := status("first"), status("second"); a != 200 || b != 401 {
		t.Errorf("at first %d and %d", a, b)
	}
	talftest.Write(t, keys, "second\n")
	hangUp()
	find(t, &log, "msg=reloaded what=keys")
	if a, b := status("first"), status("second"); a != 401 || b != 200 {
		t.Errorf("after new keys %d and %d", a, b)
	}
	talftest.Write(t, keys, "")
	hangUp()
	find(t, &log, "level=ERROR msg=.*what=keys error=.*has no keys")
	if a, b := status("first"), status("second"); a != 401 || b != 200 {
		t.Errorf("after a bad file %d and %d", a, b)
	}
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Errorf("%v\n%s", err, &log)
	}
}
