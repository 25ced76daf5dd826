package command

import (
	"runtime"
	"runtime/debug"
	"testing"

	"talf/internal/version"
)

func TestVersionSaysCommitAndDate(t *testing.T) {
	const commit = "0123456789abcdef0123456789abcdef01234567"
	setting := func(pairs ...string) (s []debug.BuildSetting) {
		for i := 0; i < len(pairs); i += 2 {
			s = append(s, debug.BuildSetting{Key: pairs[i], Value: pairs[i+1]})
		}
		return s
	}
	for name, c := range map[string]struct {
		settings []debug.BuildSetting
		want     string
	}{
		"of a commit":      {setting("vcs.revision", commit, "vcs.time", "2026-11-22T10:00:00Z", "vcs.modified", "false"), " (commit 0123456789ab, 2026-11-22T10:00:00Z)"},
		"of a changed one": {setting("vcs.revision", commit, "vcs.time", "2026-11-22T10:00:00Z", "vcs.modified", "true"), " (commit 0123456789ab, 2026-11-22T10:00:00Z, modified)"},
		"of an archive":    {nil, ""},
	} {
		info := &debug.BuildInfo{Main: debug.Module{Version: "v1.2.3"}, Settings: c.settings}
		want := "talf v1.2.3" + c.want + " " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
		if got := version.Of(info).String(); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
