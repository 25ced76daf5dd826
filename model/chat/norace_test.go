//go:build !race

package chat_test

const raceDetector = false
