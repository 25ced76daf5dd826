package main

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nonroot is the user and group that the image runs as, those of distroless.
const nonroot = 65532

// imageName is the archive of the image, an OCI layout with one image for each
// Linux platform: podman load and docker load read it.
func (r *release) imageName() string { return "talf_" + r.version + "_oci.tar" }

// image writes the container image. It contains the static program, its licences and what a
// program may expect of any system: users, a home and a directory for temporary files. Mount
// models and output on the home, /data; talf serve listens on port 8080. talf opens connections
// only where a flag says so, so there are no certificates.
func (r *release) image(out string, bins map[platform]string, shared []entry) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range []platform{{"linux", "amd64"}, {"linux", "arm64"}} {
		if bins[p] == "" {
			continue
		}
		program, err := os.ReadFile(bins[p])
		if err != nil {
			return err
		}
		img, err := r.imageFor(p, rootfs(program, shared))
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        img,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: p.os, Architecture: p.arch}, MediaType: types.OCIManifestSchema1},
		})
	}
	dir, err := os.MkdirTemp("", "talf-oci-")
	if err != nil {
		return err
	}
	defer removeAll(dir)
	if _, err := layout.Write(dir, index); err != nil {
		return err
	}
	var files []entry
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		files = append(files, entry{filepath.ToSlash(rel), 0o644, data})
		return err
	})
	if err != nil {
		return err
	}
	slices.SortFunc(files, func(a, b entry) int { return strings.Compare(a.name, b.name) })
	var b bytes.Buffer
	if err := writeTar(&b, r.time, 0, files); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, r.imageName()), b.Bytes(), 0o644)
}

// rootfs returns the files of the image.
func rootfs(program []byte, shared []entry) []entry {
	files := []entry{
		{"data/", 0o755, nil},
		{"etc/", 0o755, nil},
		{"etc/group", 0o644, []byte("root:x:0:\nnonroot:x:65532:\n")},
		{"etc/passwd", 0o644, []byte("root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/data:/sbin/nologin\n")},
		{"talf", 0o755, program},
		{"tmp/", 0o1777, nil},
		{"usr/share/doc/talf/", 0o755, nil},
	}
	for _, f := range shared {
		if f.name == "LICENSE" || f.name == "NOTICE" {
			files = append(files, entry{"usr/share/doc/talf/" + f.name, 0o644, f.data})
		}
	}
	return files
}

func (r *release) imageFor(p platform, files []entry) (v1.Image, error) {
	var b bytes.Buffer
	if err := writeTar(&b, r.time, nonroot, files); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(b.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	created := v1.Time{Time: r.time}
	img := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	img, err = mutate.Append(img, mutate.Addendum{Layer: layer, History: v1.History{Created: created, CreatedBy: "tools/release"}})
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = p.os, p.arch, created
	config.Config = v1.Config{
		User:         "65532:65532",
		Entrypoint:   []string{"/talf"},
		ExposedPorts: map[string]struct{}{"8080/tcp": {}},
		WorkingDir:   "/data",
		Env:          []string{"PATH=/", "HOME=/data"},
		Labels: map[string]string{
			"org.opencontainers.image.title":    "talf",
			"org.opencontainers.image.version":  r.version,
			"org.opencontainers.image.revision": r.commit,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	return mutate.ConfigFile(img, config)
}
