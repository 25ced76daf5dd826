// Package e2e drives talf as its users do: commands as processes, with real signals,
// limits and exit codes.
package e2e

import (
	"testing"

	"talf/cmd/talf/command"
	"talf/internal/e2e/talftest"
)

func TestMain(m *testing.M) { talftest.Main(m, command.Run) }
