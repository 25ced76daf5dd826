package load_test

import (
	"os"
	"testing"

	"talf/internal/leak"
)

func TestMain(m *testing.M) { os.Exit(leak.Main(m.Run)) }
