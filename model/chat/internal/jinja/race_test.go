//go:build race

package jinja

// raceDetector says that everything takes about ten times as long.
const raceDetector = true
