// SPDX-License-Identifier: Apache-2.0

package inplace_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	runtimecatalog "sigs.k8s.io/cluster-api/api/runtime/catalog"
	runtimehooksv1 "sigs.k8s.io/cluster-api/api/runtime/hooks/v1alpha1"
	runtimeclient "sigs.k8s.io/cluster-api/exp/runtime/client"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// extension says yes to all changes, and is done with each at once.
type extension struct {
	runtimeclient.Client // the calls that in-place updates don't make

	mu      sync.Mutex
	asked   int             // CanUpdateMachine and CanUpdateMachineSet
	updated map[string]bool // Machines
}

func (e *extension) GetAllExtensions(context.Context, runtimecatalog.Hook, client.Object) ([]string, error) {
	return []string{"willing"}, nil
}

func (e *extension) CallExtension(_ context.Context, _ runtimecatalog.Hook, _ client.Object, _ string,
	request runtimehooksv1.RequestObject, response runtimehooksv1.ResponseObject, _ ...runtimeclient.CallExtensionOption,
) error {
	e.mu.Lock()
	e.asked++
	e.mu.Unlock()
	var err error
	switch request := request.(type) {
	case *runtimehooksv1.CanUpdateMachineRequest:
		response := response.(*runtimehooksv1.CanUpdateMachineResponse)
		response.MachinePatch = merge(request.Desired.Machine.Spec, &err)
		response.BootstrapConfigPatch = merge(specOf(request.Desired.BootstrapConfig), &err)
		response.InfrastructureMachinePatch = merge(specOf(request.Desired.InfrastructureMachine), &err)
	case *runtimehooksv1.CanUpdateMachineSetRequest:
		response := response.(*runtimehooksv1.CanUpdateMachineSetResponse)
		response.MachineSetPatch = merge(map[string]any{"template": map[string]any{"spec": request.Desired.MachineSet.Spec.Template.Spec}}, &err)
		response.BootstrapConfigTemplatePatch = merge(specOf(request.Desired.BootstrapConfigTemplate), &err)
		response.InfrastructureMachineTemplatePatch = merge(specOf(request.Desired.InfrastructureMachineTemplate), &err)
	default:
		err = fmt.Errorf("%T is no question of in-place updates", request)
	}
	return err
}

func (e *extension) CallAllExtensions(_ context.Context, _ runtimecatalog.Hook, machine client.Object,
	_ runtimehooksv1.RequestObject, response runtimehooksv1.ResponseObject,
) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.updated == nil {
		e.updated = map[string]bool{}
	}
	e.updated[machine.GetName()] = true
	response.SetStatus(runtimehooksv1.ResponseStatusSuccess)
	return nil
}

func (e *extension) updates() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.updated)
}

func specOf(o runtime.RawExtension) any {
	object, ok := o.Object.(*unstructured.Unstructured)
	if !ok {
		return nil
	}
	return object.Object["spec"]
}

// merge is a patch that gives an object a spec, as far as it only adds and changes.
func merge(spec any, err *error) runtimehooksv1.Patch {
	patch, failed := json.Marshal(map[string]any{"spec": spec})
	if failed != nil {
		*err = failed
	}
	return runtimehooksv1.Patch{PatchType: runtimehooksv1.JSONMergePatchType, Patch: patch}
}
