//go:build race

package costtest

// RaceDetector says that the race detector runs: everything takes about ten times as long.
const RaceDetector = true
