package checkpoints

import (
	"fmt"
	"path/filepath"
	"strings"

	"talf/model/arch"
)

// cardFile is the model card of an exported head, as Hugging Face's hub shows it.
const cardFile = "README.md"

// card returns the head's model card in Markdown: what it drafts for, how it was made as far
// as its checkpoint says, what readers should know, and how to serve it.
// file is the head's name in that directory if it is one file, else "".
func (d *Draft) card(f Format, c *ExportConfig, file string, problems []Problem) ([]byte, error) {
	s := d.Spec
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	kind, tag := "EAGLE", "eagle"
	switch {
	case s.Block.On:
		kind, tag = "Block", "block-drafter"
	case s.Eagle3.On:
		kind, tag = "EAGLE-3", "eagle3"
	}
	line("---")
	if name := c.TargetName; name != "" && !filepath.IsAbs(name) {
		line("base_model: %q", name)
	}
	line("tags:\n- speculative-decoding\n- %s\n---\n", tag)
	line("# %s draft head for %s\n", kind, oneLine(orTarget(c, "its target")))
	line("It drafts tokens that the target then verifies: the output is the target's own. It is of no use without the target.\n")
	line("| | |\n|---|---|")
	row := func(what, format string, args ...any) { line("| %s | %s |", what, fmt.Sprintf(format, args...)) }
	row("target", "%s, hidden size %d, %d tokens", oneLine(orTarget(c, "unknown")), s.TargetHidden(), s.Vocab)
	row("parameters", "%d, without an embedding", s.Params())
	row("layers", "%d of hidden size %d, %d heads (%d for keys) of %d", s.Layers, s.Hidden, s.Heads, s.KVHeads, s.HeadDim)
	if d.Vocab != nil {
		row("draft vocabulary", "%d of the target's %d tokens", len(d.Vocab), s.Vocab)
	}
	if e := &s.Eagle3; e.On {
		taps := e.Taps
		if taps == nil && c.Target != nil {
			taps, _ = arch.DefaultTaps(c.Target.Layers)
		}
		if taps == nil {
			row("hidden states", "the inputs of the target's layers 2, n/2 and n−3 of n")
		} else {
			row("hidden states", "the inputs of the target's layers %s", strings.Trim(strings.ReplaceAll(fmt.Sprint(taps), " ", ", "), "[]"))
		}
		if on := set(e); on != nil {
			row("options", "`%s`", strings.Join(on, "`, `"))
		}
	}
	if b := &s.Block; b.On {
		row("block", "%d rows, which predict %d tokens", b.Size, b.Drafts())
		row("hidden states", "the inputs of the target's layers %s", strings.Trim(strings.ReplaceAll(fmt.Sprint(b.Taps), " ", ", "), "[]"))
	}
	m, err := ReadManifest(d.Dir)
	if err != nil {
		return nil, err
	}
	if m != nil {
		row("trained with", "talf, %d steps, loss `%s`", m.Step, oneLine(m.Loss))
		if m.Data != "" {
			row("data", "labels whose manifest has the hash `%s`", oneLine(m.Data))
		}
	}
	line("\n## Use\n")
	target, dir, one := orTarget(c, "TARGET"), "DIR", "TARGET.gguf"
	if file != "" {
		dir = "DIR/" + file
	}
	if strings.HasSuffix(target, ".gguf") {
		one = shell(target)
	} else if file != "" {
		line("`TARGET.gguf` is the target as llama.cpp's converter writes it.\n")
	}
	line("`DIR` is this directory.\n")
	method, use3, tokens := "eagle", "False", c.DraftTokens
	switch b := &s.Block; {
	case s.Eagle3.On:
		method, use3 = "eagle3", "True"
	case b.On && (b.Shift || b.Markov != ""):
		method, tokens = "dspark", b.Drafts()
	case b.On:
		method, tokens = "dflash", b.Drafts()
	}
	ours := !s.Block.On || file == "" // talf reads the file
	if ours {
		line("    talf generate --model %s --head %s --prompt 'Once upon a time'", shell(target), dir)
	}
	if f.serve != "" {
		line("    %s", strings.NewReplacer("TARGET.gguf", one, "TARGET", shell(target), "FILE", file, "METHOD", method, "ALGORITHM", strings.ToUpper(method),
			"USE3", use3, "TOKENS", fmt.Sprint(tokens)).Replace(f.serve))
	}
	if ours {
		line("\nHow many tokens it drafts right depends on the text. Measure it on yours:\n")
		line("    talf bench --model %s --head %s --prompts in.jsonl", shell(target), dir)
	}
	var notes []string
	for _, p := range problems {
		notes = append(notes, p.String())
	}
	if notes = append(notes, d.Notes...); len(notes) > 0 {
		line("\n## Notes\n")
		for _, n := range notes {
			line("- %s.", oneLine(n))
		}
	}
	return []byte(b.String()), nil
}

func orTarget(c *ExportConfig, none string) string {
	if c.TargetName == "" {
		return none
	}
	return c.TargetName
}

// oneLine keeps a name that others chose from ending a line or a cell of a table.
func oneLine(s string) string {
	return strings.NewReplacer("\n", " ", "\r", " ", "|", `\|`).Replace(s)
}

// shell quotes a word for a shell if it needs that.
func shell(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./", r)
	}
	if strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(oneLine(s), "'", `'\''`) + "'"
}
