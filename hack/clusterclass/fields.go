// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/yaml"
)

// section has the fields of a variable that are those of a field of a kind's spec.
var section = regexp.MustCompile(`(?s)(( *)# spec\.(\w+) of (\w+), by hack/clusterclass; do not edit\.\n).*?( *# End\.\n)`)

// fill writes the sections of a ClusterClass.
func fill(class []byte, crds string) ([]byte, error) {
	if !section.Match(class) {
		return nil, errors.New("there is no section to be filled")
	}
	var failed error
	filled := section.ReplaceAllFunc(class, func(old []byte) []byte {
		part := section.FindSubmatch(old)
		text, err := fields(crds, string(part[4]), string(part[3]))
		failed = errors.Join(failed, err)
		text = regexp.MustCompile(`(?m)^(.)`).ReplaceAll(text, append(part[2], "$1"...))
		return bytes.Join([][]byte{part[1], text, part[5]}, nil)
	})
	return filled, failed
}

type crd struct {
	Spec struct {
		Versions []struct {
			Schema clusterv1.VariableSchema `json:"schema"`
		} `json:"versions"`
	} `json:"spec"`
}

// fields returns the fields of a field of a kind's spec as YAML, as far as the schema of a variable can have it.
func fields(crds, kind, field string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(crds, "infrastructure.cluster.x-k8s.io_"+kind+".yaml"))
	if err != nil {
		return nil, err
	}
	of := crd{}
	if err := yaml.Unmarshal(content, &of); err != nil {
		return nil, err
	}
	schema := of.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties[field]
	if len(schema.Properties) == 0 || len(schema.Required)+len(schema.XValidations) > 0 {
		return nil, fmt.Errorf("spec.%s of %s has no fields, or rules across them, which would be left out", field, kind)
	}
	return yaml.Marshal(schema.Properties)
}
