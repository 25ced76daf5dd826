package main

import (
	"debug/buildinfo"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/CycloneDX/cyclonedx-go"
)

// components writes what a binary is built from, according to its own build information, as a
// CycloneDX document. Everything in it follows from the binary and the commit.
func (r *release) components(name string, info *buildinfo.BuildInfo, sum [32]byte) error {
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	main := cyclonedx.Component{
		BOMRef: "talf", Type: cyclonedx.ComponentTypeApplication, Name: "talf", Version: r.version,
		Hashes:   &[]cyclonedx.Hash{{Algorithm: cyclonedx.HashAlgoSHA256, Value: fmt.Sprintf("%x", sum)}},
		Licenses: &cyclonedx.Licenses{{License: &cyclonedx.License{ID: "Apache-2.0"}}},
	}
	all := []cyclonedx.Component{library("std", goVersion)}
	for _, d := range info.Deps {
		if d.Replace != nil {
			d = d.Replace
		}
		all = append(all, library(d.Path, d.Version))
	}
	var refs []string
	for _, c := range all {
		refs = append(refs, c.BOMRef)
	}
	var properties []cyclonedx.Property
	for _, s := range info.Settings {
		properties = append(properties, cyclonedx.Property{Name: "build:" + s.Key, Value: s.Value})
	}
	slices.SortFunc(properties, func(a, b cyclonedx.Property) int { return strings.Compare(a.Name, b.Name) })
	main.Properties = &properties

	bom := cyclonedx.NewBOM()
	// A version 8 UUID (RFC 9562, section 5.8) derived from the binary's digest.
	id := sum
	id[6], id[8] = id[6]&0x0f|0x80, id[8]&0x3f|0x80
	bom.SerialNumber = fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[:4], id[4:6], id[6:8], id[8:10], id[10:16])
	bom.Metadata = &cyclonedx.Metadata{Timestamp: r.time.Format(time.RFC3339), Component: &main}
	bom.Components = &all
	bom.Dependencies = &[]cyclonedx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}

	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := cyclonedx.NewBOMEncoder(f, cyclonedx.BOMFileFormatJSON).SetPretty(true).Encode(bom); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}

// library returns a Go module as a component.
func library(path, version string) cyclonedx.Component {
	purl := "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
	return cyclonedx.Component{BOMRef: purl, Type: cyclonedx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: purl}
}
