package data

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
)

// A Maker makes the rows of a set that is not stored, when they are read. A row is the same
// however often it is made.
type Maker interface {
	// Text returns the tokens and the mask of a row of the set.
	Text(row int) Record
	// Make fills in the first of the rows, which have their texts, and as many after it as it
	// likes to make at once: they are likely to be read next. It returns how many it filled in.
	Make(rows []Record, at []Place) (int, error)
}

// Unstored returns a set of the rows that m makes, in the shards and with the row groups that a
// Writer with opt would give them. Rows, Tokens and SHA256, of what its rows are made of, are set
// in every shard. Readers of this set have the order of readers of the written one as long as
// their windows end at the same row groups: a written group's size counts a few bytes of Parquet.
func Unstored(meta Meta, shards []Shard, m Maker, opt WriterOptions) (*Set, error) {
	raw, err := json.Marshal(&meta)
	if err != nil {
		return nil, err
	}
	s := &Set{meta: meta, complete: true, shards: shards, window: windowBytes, maker: m}
	id := sha256.New()
	id.Write(raw)
	for i := range shards {
		id.Write([]byte(shards[i].SHA256))
		var g *group
		for j := range shards[i].Rows {
			size := int64(len(m.Text(s.rows).Tokens) * meta.tokenBytes())
			if j == 0 || g.bytes+size > int64(opt.RowGroup) || g.rows == maxGroupRows {
				s.groups = append(s.groups, group{shard: i, first: s.rows})
				g = &s.groups[len(s.groups)-1]
			}
			g.rows, g.bytes, s.rows = g.rows+1, g.bytes+size, s.rows+1
		}
	}
	s.id = hex.EncodeToString(id.Sum(nil))
	return s, nil
}
