package meter

import (
	"testing"

	"talf/compute"
	"talf/compute/computetest"
)

func TestAWatchedQueueKeepsItsAbilities(t *testing.T) {
	computetest.Decorates(t, func(q compute.Queue) compute.Queue { return Watch(q, New()) }, map[string]computetest.Treatment{
		"Peaks": computetest.Passed, "Replay": computetest.Passed, "Choose": computetest.Passed, "Draw": computetest.Passed, "Bulk": computetest.Passed, "BF16": computetest.Passed,
		"Train": computetest.Wrapped, "Block": computetest.Wrapped, "Remote": computetest.Passed, "Stash": computetest.Wrapped, "Check": computetest.Passed, "Cancel": computetest.Passed,
		"Variants": computetest.Passed, "Latent": computetest.Passed, "Recur": computetest.Passed,
	})
}
