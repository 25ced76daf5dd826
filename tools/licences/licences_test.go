package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const mit = `Copyright (c) 2020 Somebody

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
`

const gpl = `This program is free software: you can redistribute it and/or modify it under
the terms of the GNU General Public License as published by the Free Software
Foundation, either version 3 of the License, or (at your option) any later version.

This program is distributed in the hope that it will be useful, but WITHOUT ANY
WARRANTY; without even the implied warranty of MERCHANTABILITY or FITNESS FOR A
PARTICULAR PURPOSE. See the GNU General Public License for more details.
`

func TestReadAcceptsAndRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string // the licences, or "error: " and a part of the message
	}{
		"accepted":             {map[string]string{"LICENSE": mit}, "MIT"},
		"beside the package":   {map[string]string{"LICENSE": mit, "pkg/LICENSE.txt": mit, "other/LICENSE": gpl}, "MIT"},
		"below the package":    {map[string]string{"LICENSE": mit, "pkg/COPYING": gpl}, "error: pkg/COPYING: licence GPL-3.0"},
		"directory of texts":   {map[string]string{"LICENSE": mit, "licenses/gpl.txt": gpl}, "error: licenses/gpl.txt: licence GPL-3.0"},
		"notice is passed on":  {map[string]string{"LICENSE": mit, "NOTICE": "Made by Somebody."}, "MIT"},
		"notice alone":         {map[string]string{"NOTICE": "Made by Somebody."}, "error: no licence found"},
		"nothing":              {map[string]string{"README": mit}, "error: no licence found"},
		"unknown":              {map[string]string{"LICENSE": "Do what you like, but not on Sundays."}, "error: unknown licence"},
		"a clause of its own":  {map[string]string{"LICENSE": mit + strings.Repeat("The Software may not be sold, hosted or offered as a service to third parties. ", 12)}, "error: unknown licence"},
		"source is no licence": {map[string]string{"LICENSE": mit, "license.go": "package x"}, "MIT"},
	} {
		t.Run(name, func(t *testing.T) {
			m := module{Path: "example.org/m", Version: "v1.0.0", Dir: t.TempDir()}
			m.packages = []string{filepath.Join(m.Dir, "pkg")}
			if err := os.MkdirAll(m.packages[0], 0o755); err != nil {
				t.Fatal(err)
			}
			for name, text := range c.files {
				p := filepath.Join(m.Dir, name)
				if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			err := m.read()
			got := strings.Join(m.licences, ",")
			if want, bad := strings.CutPrefix(c.want, "error: "); bad {
				if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), m.Path) {
					t.Errorf("got %q, %v, want an error with %q", got, err, want)
				}
			} else if err != nil || got != c.want {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
		})
	}
}

// A text that is not the one chosen is neither listed nor passed on.
func TestAChoiceIsMade(t *testing.T) {
	m := module{Path: "github.com/golang/freetype"}
	for _, f := range []file{{"licenses/gpl.txt", gpl}, {"LICENSE", "Use of the software is subject to one of two licences."}} {
		if err := m.add(f.name, f.text); err != nil {
			t.Fatal(err)
		}
	}
	if strings.Join(m.licences, ",") != "FTL" || len(m.files) != 1 || m.files[0].name != "LICENSE" {
		t.Errorf("licences %v, files %v", m.licences, m.files)
	}
}

func TestNoticeHoldsEveryTextOnce(t *testing.T) {
	a := module{Path: "example.org/a", Version: "v1", licences: []string{"MIT"}, files: []file{{"LICENSE", "text one"}}}
	b := module{Path: "example.org/b", Version: "v2", licences: []string{"MIT"}, files: []file{{"LICENSE", "text one"}, {"NOTICE", "text two"}}}
	got := string(notice([]module{a, b}))
	for _, want := range []string{"example.org/a v1: MIT\n", "example.org/b v2: MIT\n", "example.org/a (LICENSE)\nexample.org/b (LICENSE)\n", "example.org/b (NOTICE)\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing from\n%s", want, got)
		}
	}
	if strings.Count(got, "text one") != 1 || strings.Count(got, "text two") != 1 {
		t.Errorf("a text is missing or repeated:\n%s", got)
	}
}
