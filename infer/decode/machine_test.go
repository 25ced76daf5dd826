package decode_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"talf/infer/decode"
	"talf/internal/e2e/talftest"
	"talf/model"
	"talf/model/gguf/gguftest"
)

// A load tells how far it is, from nothing to all of it, and ends with its context at any piece of that.
func TestALoadTellsHowFarItIsAndEndsWithItsContext(t *testing.T) {
	path := gguftest.Tiny(3).Write(t, "tiny.gguf")
	type piece struct {
		phase       model.Phase
		done, total int64
	}
	load := func(endAt int) (pieces []piece, err error) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		l := decode.Loader{Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Progress: func(_ context.Context, p model.Phase, done, total int64) {
			pieces = append(pieces, piece{p, done, total})
			if len(pieces) == endAt {
				cancel()
			}
		}}
		o := decode.DefaultMachine()
		o.Threads = 1
		m, free, err := l.Model(ctx, path, &o)
		if err == nil {
			if m.Weights() != "stored" {
				t.Errorf("weights are %s", m.Weights())
			}
			free()
		}
		return pieces, err
	}
	all, err := load(0)
	if err != nil || len(all) < 3 {
		t.Fatalf("%d pieces, %v", len(all), err)
	}
	for i, p := range all {
		if p.phase != model.Loading || p.total != all[0].total || i > 0 && p.done < all[i-1].done {
			t.Errorf("piece %d of %d: %+v", i, len(all), p)
		}
	}
	if last := all[len(all)-1]; last.done != last.total {
		t.Errorf("the last piece is %+v", last)
	}
	for at := 1; at < len(all); at += 1 + len(all)/5 {
		if pieces, err := load(at); !errors.Is(err, context.Canceled) || len(pieces) != at {
			t.Errorf("interrupted at piece %d of %d: %d pieces, %v", at, len(all), len(pieces), err)
		}
	}
}

// What is given as a model but is something else, or is not there, is named.
func TestWhatIsNoModelIsRefused(t *testing.T) {
	l := decode.Loader{Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	target := talftest.TinyModel(t, talftest.TinyConfig(), 1)
	for path, want := range map[string]string{
		talftest.TinyHead(t, target, 1):       "is a draft head, not a language model",
		filepath.Join(t.TempDir(), "nothing"): "does not exist: want a model (directory or .gguf)",
	} {
		o := decode.DefaultMachine()
		if _, _, err := l.Model(t.Context(), path, &o); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
}
