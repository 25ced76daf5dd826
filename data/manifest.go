package data

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"

	"talf/internal/durable"
	"talf/internal/limits"
)

// ManifestName is the file that lists the shards of a set.
const ManifestName = "manifest.json"

const manifestFormat = "talf-data"

// A Manifest lists the finished shards of a set, in order.
type Manifest struct {
	Format   string  `json:"format"`
	Meta     Meta    `json:"meta"`
	Part     *Stripe `json:"part,omitempty"` // nil: of the whole set
	Shards   []Shard `json:"shards"`
	Complete bool    `json:"complete"` // no more shards follow
}

// A Shard is one finished file of a set.
type Shard struct {
	File    string         `json:"file"`
	Rows    int            `json:"rows"`
	Tokens  int64          `json:"tokens"`
	Loss    int64          `json:"loss_tokens"` // tokens with the loss mask set
	Units   int            `json:"units"`       // pieces of input in it, including dropped ones
	Dropped map[string]int `json:"dropped,omitempty"`
	Inputs  []Input        `json:"inputs,omitempty"` // empty for a single file without conversations, where it would repeat the other counts
	// Text identifies the pieces of input as they were read for this shard; "" if its
	// maker does not say.
	Text   string `json:"text,omitempty"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
}

func shardName(i int) string { return fmt.Sprintf("shard-%05d.parquet", i) }

// ParseManifest reads a manifest and reports the first field that is wrong.
func ParseManifest(raw []byte) (*Manifest, error) {
	var head struct {
		Format string `json:"format"`
		Meta   struct {
			Schema int `json:"schema"`
		} `json:"meta"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, err
	}
	if head.Format != manifestFormat {
		return nil, fmt.Errorf("format: %q, want %q", head.Format, manifestFormat)
	}
	if v := head.Meta.Schema; v != SchemaVersion {
		return nil, fmt.Errorf("meta.%w", versionError(v))
	}
	var m Manifest
	if err := parseStrict(raw, &m); err != nil {
		return nil, err
	}
	if err := m.Meta.Validate(); err != nil {
		return nil, fmt.Errorf("meta.%w", err)
	}
	part := Whole()
	if m.Part != nil {
		if part = *m.Part; part.Validate() != nil || part == Whole() {
			return nil, fmt.Errorf("part: index %d of %d, want one of at least 2", part.Index, part.Count)
		}
	}
	for i, s := range m.Shards {
		switch name := shardName(part.Shard(i)); {
		case s.File != name:
			return nil, fmt.Errorf("shards[%d].file: %q, want %q", i, s.File, name)
		case s.Rows < 0 || s.Tokens < int64(s.Rows) || s.Loss < 0 || s.Loss > s.Tokens || s.Units < 0 || s.Bytes < 1:
			return nil, fmt.Errorf("shards[%d]: counts that no shard has: %d rows, %d tokens, %d loss tokens, %d units, %d bytes", i, s.Rows, s.Tokens, s.Loss, s.Units, s.Bytes)
		case len(s.SHA256) != 2*sha256.Size:
			return nil, fmt.Errorf("shards[%d].sha256: %d digits, want %d", i, len(s.SHA256), 2*sha256.Size)
		}
		if err := checkInputs(s.Inputs); err != nil {
			return nil, fmt.Errorf("shards[%d].%w", i, err)
		}
	}
	return &m, nil
}

func readManifest(path string) (*Manifest, error) {
	raw, err := limits.ReadFile(path, limits.ManifestBytes)
	if err != nil {
		return nil, err
	}
	m, err := ParseManifest(raw)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return m, nil
}

// name returns the manifest's file name.
func (m *Manifest) name() string {
	if m.Part != nil {
		return m.Part.manifest()
	}
	return ManifestName
}

func writeManifest(dir string, m *Manifest) error {
	raw, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return err
	}
	return durable.WriteFile(filepath.Join(dir, m.name()), append(raw, '\n'))
}

// hashFile returns the size and the hex SHA-256 of a file.
func hashFile(path string) (int64, string, error) {
	f, err := limits.Open(path)
	if err != nil {
		return 0, "", err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	if err != nil {
		return 0, "", fmt.Errorf("read %s: %w", path, err)
	}
	return n, hex.EncodeToString(h.Sum(nil)), nil
}
