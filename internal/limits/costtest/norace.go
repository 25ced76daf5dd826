//go:build !race

package costtest

// RaceDetector says that the race detector runs: everything takes about ten times as long.
const RaceDetector = false

// slower is how many times as long everything may take.
const slower = 1
