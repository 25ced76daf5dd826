package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// An entry is a file of an archive. A name that ends in a slash is a directory.
type entry struct {
	name string
	mode int64
	data []byte
}

// archive writes files below a directory called name: a zip for Windows, a tar.gz
// for all others.
func (r *release) archive(out, name string, p platform, files []entry) error {
	below := make([]entry, len(files))
	for i, f := range files {
		below[i] = entry{name + "/" + f.name, f.mode, f.data}
	}
	var b bytes.Buffer
	if p.os == "windows" {
		if err := writeZip(&b, r.time, below); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(out, name+".zip"), b.Bytes(), 0o644)
	}
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := errors.Join(writeTar(z, r.time, 0, below), z.Close()); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, name+".tar.gz"), b.Bytes(), 0o644)
}

// writeTar writes files in the given order, with the same time for all and owner as the owner of
// the directory data and its contents, root for the rest.
func writeTar(w io.Writer, at time.Time, owner int, files []entry) error {
	t := tar.NewWriter(w)
	for _, f := range files {
		h := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data)), ModTime: at, Format: tar.FormatUSTAR}
		if strings.HasSuffix(f.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if strings.HasPrefix(f.name, "data/") {
			h.Uid, h.Gid = owner, owner
		}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		if _, err := t.Write(f.data); err != nil {
			return err
		}
	}
	return t.Close()
}

func writeZip(w io.Writer, at time.Time, files []entry) error {
	z := zip.NewWriter(w)
	for _, f := range files {
		h := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: at}
		h.SetMode(fs.FileMode(f.mode))
		e, err := z.CreateHeader(h)
		if err != nil {
			return err
		}
		if _, err := e.Write(f.data); err != nil {
			return err
		}
	}
	return z.Close()
}

// sumsName is the list of digests of a release.
const sumsName = "SHA256SUMS"

// sums writes SHA256SUMS of the files in dir, as sha256sum -c reads it.
func sums(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%x  %s\n", sha256.Sum256(data), e.Name())
	}
	return os.WriteFile(filepath.Join(dir, sumsName), []byte(b.String()), 0o644)
}

// same compares the files of two directories, and returns how many there are.
func same(a, b string) (int, error) {
	names := map[string]bool{}
	for _, dir := range []string{a, b} {
		entries, err := os.ReadDir(dir)
		if err != nil {
			return 0, err
		}
		for _, e := range entries {
			names[e.Name()] = true
		}
	}
	var errs []error
	for name := range names {
		x, errA := os.ReadFile(filepath.Join(a, name))
		y, errB := os.ReadFile(filepath.Join(b, name))
		if err := errors.Join(errA, errB); err != nil {
			errs = append(errs, err)
		} else if !bytes.Equal(x, y) {
			errs = append(errs, fmt.Errorf("%s differs between two builds of one commit", name))
		}
	}
	if len(names) == 0 {
		errs = append(errs, fmt.Errorf("%s is empty", a))
	}
	return len(names), errors.Join(errs...)
}
