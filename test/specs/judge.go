// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"context"
	"fmt"
	"math"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Judge decides as the API server does which specs of a kind are valid, and which may follow which.
type Judge struct {
	structural *schema.Structural
	values     validation.SchemaValidator
	rules      *cel.Validator
}

// perCall is the API server's limit of what one evaluation of a rule may cost.
const perCall = 1000000

// NewJudge returns the judge of a kind.
func NewJudge(kind Kind) (*Judge, error) {
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(&kind.Schema, internal, nil); err != nil {
		return nil, fmt.Errorf("converting the schema of %s: %w", kind.Name, err)
	}
	structural, err := schema.NewStructural(internal)
	if err != nil {
		return nil, fmt.Errorf("the schema of %s: %w", kind.Name, err)
	}
	values, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		return nil, fmt.Errorf("the values of %s: %w", kind.Name, err)
	}
	return &Judge{structural, values, cel.NewValidator(structural, false, perCall)}, nil
}

// Create returns a spec as the API server stores it, with defaults, and why it is not valid.
func (j *Judge) Create(spec map[string]any) (map[string]any, field.ErrorList) {
	stored := toMap([]byte(Text(spec)))
	defaulting.Default(stored, j.structural)
	return stored, j.judge(stored, nil)
}

// Update returns why an object that has a spec may not have another one, both as they are stored.
func (j *Judge) Update(from, to map[string]any) field.ErrorList { return j.judge(to, from) }

func (j *Judge) judge(spec, before map[string]any) field.ErrorList {
	path := field.NewPath("spec")
	problems := validation.ValidateCustomResource(path, spec, j.values)
	problems = append(problems, listtype.ValidateListSetsAndMaps(path, j.structural, spec)...)
	if len(problems) > 0 || j.rules == nil {
		return problems // Rules may rely on the types.
	}
	var old any
	if before != nil {
		old = before
	}
	problems, _ = j.rules.Validate(context.Background(), path, j.structural, spec, old, math.MaxInt64)
	return problems
}
