package command

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"talf/internal/e2e/talftest"
)

// Templates of a server write the day that it is, unless --date says another.
func TestServeWritesTodaysDate(t *testing.T) {
	dir := talftest.ChatModel(t)
	talftest.Write(t, filepath.Join(dir, "chat_template.jinja"), "{{ strftime_now('%Y-%m-%d') }}")
	for _, c := range []struct {
		args []string
		want string // "": today
	}{{nil, ""}, {[]string{"--date", "2025-02-03"}, "2025-02-03"}} {
		url, _ := startServer(t, append([]string{"--model", dir, "--method", "ar"}, c.args...)...)
		url = strings.TrimSuffix(url, "/v1")
		before := time.Now().Format(time.DateOnly)
		status, body := ask(t, url+"/tokenize", `{"messages":[{"role":"user","content":"Hi"}],"add_special_tokens":false}`)
		var ids struct{ Tokens json.RawMessage }
		if err := json.Unmarshal([]byte(body), &ids); err != nil || status != 200 {
			t.Fatalf("%d %s: %v", status, body, err)
		}
		_, body = ask(t, url+"/detokenize", fmt.Sprintf(`{"tokens":%s}`, ids.Tokens))
		after := time.Now().Format(time.DateOnly) // the day may change meanwhile
		if has := func(day string) bool { return strings.Contains(body, day) }; c.want != "" && !has(c.want) || c.want == "" && !has(before) && !has(after) {
			t.Errorf("%v: the template wrote %s, want %s", c.args, body, c.want)
		}
	}
}
