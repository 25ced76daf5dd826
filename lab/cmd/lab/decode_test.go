package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"talf/cmd/talf/command"
	"talf/internal/e2e/talftest"
	"talf/lab/micro"
)

func TestPassesAndProductsAreMeasured(t *testing.T) {
	dir := talftest.TinyModel(t, talftest.TinyConfig(), 4)
	var r micro.Report
	if err := json.Unmarshal([]byte(talftest.OK(t, "", "decode", "--model", dir, "--rows", "1,3", "--context", "5,9", "--reps", "2", "--json")), &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Passes) != 3*2*2 || r.Passes[0].Model != "F32" || r.Passes[0].Context != 5 || r.Device == "" || r.Date == "" {
		t.Errorf("%+v", r)
	}
	for _, name := range []string{"p.svg", "p.png"} {
		path := filepath.Join(t.TempDir(), name)
		talftest.OK(t, "", "decode", "--model", dir, "--rows", "1,3", "--context", "5,9", "--reps", "1", "--prompt", "7", "--plot", path)
		if b, err := os.ReadFile(path); err != nil || len(b) < 1000 {
			t.Errorf("%s has %d bytes: %v", name, len(b), err)
		}
	}
	talftest.Run(t, "", "decode", "--model", dir, "--plot", "p.gif").Refuses(t, command.ExitUsage, ".png or .svg")
	talftest.Run(t, "", "decode", "--model", dir, "--plot", "p").Refuses(t, command.ExitUsage, ".png or .svg")
	if s := talftest.OK(t, "", "kernels", "--rows", "1", "--reps", "1", "--class", "portable", "--dtype", "q8,q4", "--sizes", "64x96", "--markdown"); !strings.Contains(s, "| portable | Q8 | 64×96 | 1 |") || !strings.Contains(s, "| portable | Q4 | 64×96 | 1 |") {
		t.Error(s)
	}
	talftest.Run(t, "", "decode", "--model", dir, "--shape", "110m").Refuses(t, command.ExitUsage, "exclude each other")
	talftest.Run(t, "", "decode", "--shape", "7m").Refuses(t, command.ExitUsage, "10m, 110m, moe-225m, 1b")
	talftest.Run(t, "", "decode", "--dtype", "auto").Refuses(t, command.ExitUsage, "f32, bf16, bf16dp, q8")
	talftest.Run(t, "", "decode", "--rows", "0").Refuses(t, command.ExitUsage, "a tree of 0 nodes")
	talftest.Run(t, "", "decode", dir, "extra").Refuses(t, command.ExitUsage, "extra")
	talftest.Run(t, "", "kernels", "--class", "sse9").Refuses(t, command.ExitUsage, "portable")
	talftest.Run(t, "", "kernels", "--sizes", "64").Refuses(t, command.ExitUsage, "64")
	talftest.Run(t, "", "decode", "--shape", "moe-225m:spread=0").Refuses(t, command.ExitUsage, "spread is")
}
