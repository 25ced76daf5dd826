package main

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// smoke unpacks the image for this machine's architecture, and runs its entrypoint with the
// argument version, as the image's user, with nothing but the image visible.
func smoke(ctx context.Context, out, rootfs string) error {
	if os.Getuid() != 0 {
		fmt.Println("SKIP: running the image needs root, for chroot")
		return nil
	}
	config, err := unpackImage(out, rootfs)
	if err != nil {
		return fmt.Errorf("unpack the image: %w", err)
	}
	var uid, gid uint32
	if _, err := fmt.Sscanf(config.User, "%d:%d", &uid, &gid); err != nil || uid == 0 || gid == 0 {
		return fmt.Errorf("the image's user is %q, want numbers other than root's", config.User)
	}
	cmd := exec.CommandContext(ctx, config.Entrypoint[0], append(config.Entrypoint[1:len(config.Entrypoint):len(config.Entrypoint)], "version", "--json")...)
	cmd.Dir, cmd.Env = config.WorkingDir, config.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: rootfs, Credential: &syscall.Credential{Uid: uid, Gid: gid}}
	b, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("run talf version in the image: %w\n%s", err, b)
	}
	if revision := config.Labels["org.opencontainers.image.revision"]; !bytes.Contains(b, []byte(revision)) {
		return fmt.Errorf("talf version in the image does not say commit %s:\n%s", revision, b)
	}
	fmt.Printf("talf version ran in the image as user %d\n", uid)
	return nil
}

// unpackImage extracts the image for this machine's architecture to rootfs.
func unpackImage(out, rootfs string) (*v1.Config, error) {
	archives, err := filepath.Glob(filepath.Join(out, "*_oci.tar"))
	if err != nil || len(archives) != 1 {
		return nil, fmt.Errorf("%d archives of an image in %s, want 1", len(archives), out)
	}
	f, err := os.Open(archives[0])
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	dir := rootfs + ".oci"
	if err := untar(f, dir); err != nil {
		return nil, err
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, err
	}
	ours := match.Platforms(v1.Platform{OS: runtime.GOOS, Architecture: runtime.GOARCH})
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	for _, d := range manifest.Manifests {
		if !ours(d) {
			continue
		}
		img, err := index.Image(d.Digest)
		if err != nil {
			return nil, err
		}
		config, err := img.ConfigFile()
		if err != nil {
			return nil, err
		}
		files := mutate.Extract(img)
		defer func() { _ = files.Close() }()
		return &config.Config, untar(files, rootfs)
	}
	return nil, fmt.Errorf("no image for %s/%s", runtime.GOOS, runtime.GOARCH)
}

// untar extracts files and directories below dir, with their modes and owners.
func untar(r io.Reader, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	t := tar.NewReader(r)
	for {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !filepath.IsLocal(strings.TrimSuffix(h.Name, "/")) {
			return fmt.Errorf("%s is outside the archive", h.Name)
		}
		name := filepath.Join(dir, h.Name)
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(name, 0o755)
		} else {
			err = errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), writeFile(name, t))
		}
		if err == nil {
			err = os.Chmod(name, h.FileInfo().Mode())
		}
		if err == nil && os.Getuid() == 0 {
			err = os.Chown(name, h.Uid, h.Gid)
		}
		if err != nil {
			return err
		}
	}
}

func writeFile(name string, r io.Reader) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	return errors.Join(err, f.Close())
}
