//go:build race

package chat_test

// raceDetector says that everything takes about ten times as long.
const raceDetector = true
