package decode

import (
	"bufio"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"

	"talf/internal/limits"
	"talf/internal/splitmix"
	"talf/internal/vfs"
)

// Seed returns the seed of prompt i of a file, both from 0. Equal prompts get different answers,
// and each answer can be reproduced alone. Seed(Seed(s, i), i) is s.
func Seed(seed uint64, i int) uint64 {
	if i == 0 {
		return seed
	}
	return seed ^ uint64(i)*splitmix.Gamma&math.MaxInt64
}

// TurnSeed returns the seed of a turn, from 0, of a dialogue. The first has the dialogue's own.
// Draws are keyed by seed and position, and a template that shortens the history brings a later
// turn back to the positions of an earlier one: with one seed both would draw the same numbers.
func TurnSeed(seed uint64, turn int) uint64 {
	if turn == 0 {
		return seed
	}
	// Two steps, as the seeds of prompts are multiples of Gamma apart, too.
	return splitmix.Mix(splitmix.Mix(seed+splitmix.Gamma)+uint64(turn)*splitmix.Gamma) & math.MaxInt64
}

// DrawSeed returns a seed from the system's random numbers. It is below 2⁵³, so that programs
// that read numbers of JSON as float64 can repeat an answer.
func DrawSeed() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:]) >> 11
}

// SeedFor returns the seed of the run that wrote a file of answers, if there is one and it has an
// answer, and otherwise one that is drawn. path may be "".
func SeedFor(path string) (uint64, error) {
	if path != "" {
		if seed, known, err := RunSeed(path); known || err != nil {
			return seed, err
		}
	}
	return DrawSeed(), nil
}

// RunSeed returns the seed of the run that wrote a file of answers, for a run that continues it.
// ok is false if there is no file or no answer in it yet.
func RunSeed(path string) (seed uint64, ok bool, err error) {
	f, err := vfs.OpenRead(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	defer f.Close() // nothing was written
	line, err := limits.ReadLine(bufio.NewReader(f), limits.LineBytes)
	if errors.Is(err, io.EOF) {
		return 0, false, nil // empty, or a line that an interruption cut
	}
	if err != nil {
		return 0, false, fmt.Errorf("%s: %w", path, err)
	}
	var a Answer
	if json.Unmarshal(line, &a) != nil {
		return 0, false, nil // OpenAnswers says what is wrong with the file
	}
	return Seed(a.Seed, a.Index), true, nil
}
