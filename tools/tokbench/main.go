//go:build unix

// Command tokbench times tokenizers for lab/experiments/tokenizers.sh:
//
//	tokbench talf|sugarme FILE
//
// It loads the tokenizer.json FILE and answers requests on standard input, one JSON object per
// line: {"op": "encode", "texts": […]}, {"op": "decode", "ids": [[…], …]} or {"op": "again"},
// which repeats the last one. The answer is {"seconds": …} of processor time with the result,
// "ids" or "texts" (not for a repetition), or {"error": …}. Reading, writing and loading are not
// timed.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"syscall"
	"time"

	sugar "github.com/sugarme/tokenizer"
	"github.com/sugarme/tokenizer/pretrained"

	"talf/text/tokenizer"
)

type request struct {
	Op    string    `json:"op"`
	Texts []string  `json:"texts"`
	IDs   [][]int32 `json:"ids"`
}

type answer struct {
	Seconds float64   `json:"seconds,omitempty"`
	IDs     [][]int32 `json:"ids,omitempty"`
	Texts   []string  `json:"texts,omitempty"`
	Error   string    `json:"error,omitempty"`
}

// A codec is one implementation with one tokenizer loaded.
type codec interface {
	encode(texts []string) ([][]int32, error)
	decode(ids [][]int32) ([]string, error)
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("tokbench: ")
	if len(os.Args) != 3 {
		log.Fatal("usage: tokbench talf|sugarme FILE")
	}
	if err := serve(os.Args[1], os.Args[2], os.Stdin, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func serve(kind, file string, in io.Reader, out io.Writer) error {
	enc := json.NewEncoder(out)
	c, err := open(kind, file)
	if err != nil {
		return enc.Encode(answer{Error: err.Error()})
	}
	if err := enc.Encode(answer{}); err != nil {
		return err
	}
	dec := json.NewDecoder(bufio.NewReaderSize(in, 1<<20))
	var last request
	for {
		var r request
		if err := dec.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		again := r.Op == "again"
		if again {
			r = last
		}
		last = r
		a := timed(c, r)
		if again {
			a.IDs, a.Texts = nil, nil
		}
		if err := enc.Encode(a); err != nil {
			return err
		}
	}
}

// timed executes a request. A panic of an implementation is an answer too.
func timed(c codec, r request) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a = answer{Error: fmt.Sprint(p)}
		}
	}()
	var err error
	start := cpuTime()
	switch r.Op {
	case "encode":
		a.IDs, err = c.encode(r.Texts)
	case "decode":
		a.Texts, err = c.decode(r.IDs)
	default:
		err = fmt.Errorf("op %q, expected encode or decode", r.Op)
	}
	a.Seconds = (cpuTime() - start).Seconds()
	if err != nil {
		a = answer{Error: err.Error()}
	}
	return a
}

// cpuTime returns the processor time of this process: unlike the clock, it does not count the
// time of other processes. It includes the garbage collector, wherever that ran.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		log.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func open(kind, file string) (c codec, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
	}()
	switch kind {
	case "talf":
		t, err := tokenizer.Load(filepath.Dir(file))
		return own{t}, err
	case "sugarme":
		t, err := pretrained.FromFile(file)
		return unmodified{t}, err
	}
	return nil, fmt.Errorf("%q, expected talf or sugarme", kind)
}

// own is package text/tokenizer.
type own struct{ t *tokenizer.Tokenizer }

func (o own) encode(texts []string) ([][]int32, error) {
	out := make([][]int32, len(texts))
	for i, s := range texts {
		var err error
		if out[i], err = o.t.Encode(s, false); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (o own) decode(ids [][]int32) ([]string, error) {
	out := make([]string, len(ids))
	for i, s := range ids {
		out[i] = o.t.Decode(s, false)
	}
	return out, nil
}

// unmodified is sugarme/tokenizer with its own parts.
type unmodified struct{ t *sugar.Tokenizer }

func (u unmodified) encode(texts []string) ([][]int32, error) {
	out := make([][]int32, len(texts))
	for i, s := range texts {
		e, err := u.t.EncodeSingle(s, false)
		if err != nil {
			return nil, err
		}
		out[i] = make([]int32, len(e.Ids))
		for j, id := range e.Ids {
			out[i][j] = int32(id)
		}
	}
	return out, nil
}

func (u unmodified) decode(ids [][]int32) ([]string, error) {
	out := make([]string, len(ids))
	for i, s := range ids {
		in := make([]int, len(s))
		for j, id := range s {
			in[j] = int(id)
		}
		out[i] = u.t.Decode(in, false)
	}
	return out, nil
}
