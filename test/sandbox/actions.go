// SPDX-License-Identifier: Apache-2.0

package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

const fieldOwner = "sandbox"

// ApplyYAML applies all documents, server-side. Objects without a namespace are applied in the namespace default.
func (s *Sandbox) ApplyYAML(ctx context.Context, documents io.Reader) error {
	return eachObject(documents, func(object *unstructured.Unstructured) error { return s.apply(ctx, object) })
}

// eachObject reads YAML documents; empty ones are passed over.
func eachObject(documents io.Reader, do func(*unstructured.Unstructured) error) error {
	decoder := utilyaml.NewYAMLOrJSONDecoder(documents, 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading objects to apply: %w", err)
		}
		if len(object.Object) == 0 {
			continue
		}
		if err := do(object); err != nil {
			return err
		}
	}
}

// apply tries again where a webhook can't be called, or a kind is not served yet.
func (s *Sandbox) apply(ctx context.Context, object *unstructured.Unstructured) error {
	what := fmt.Sprintf("%s %s to be accepted", object.GetKind(), object.GetName())
	return eventually.Wait(ctx, what, func() (bool, string, error) {
		err := s.setNamespace(object)
		if err == nil {
			err = s.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(fieldOwner), client.ForceOwnership)
		}
		switch {
		case err == nil:
			return true, "", nil
		case meta.IsNoMatchError(err), apierrors.IsInternalError(err), apierrors.IsNotFound(err), apierrors.IsServerTimeout(err):
			return false, err.Error(), nil
		default:
			return false, "", err
		}
	})
}

func (s *Sandbox) setNamespace(object *unstructured.Unstructured) error {
	namespaced, err := s.Client.IsObjectNamespaced(object)
	if err != nil {
		return err
	}
	if namespaced && object.GetNamespace() == "" {
		object.SetNamespace("default")
	}
	return nil
}

// ApplyFile applies a file of the repository, named by its path in it.
func (s *Sandbox) ApplyFile(ctx context.Context, name string) error {
	file, err := os.Open(filepath.Join(s.root, filepath.FromSlash(name)))
	if err != nil {
		return fmt.Errorf("applying %s: %w", name, err)
	}
	defer func() { _ = file.Close() }()
	return s.ApplyYAML(ctx, file)
}

// DeleteCluster deletes a Cluster and waits until it, and with it all of its machines, is gone.
func (s *Sandbox) DeleteCluster(ctx context.Context, name client.ObjectKey) error {
	cluster := &clusterv1.Cluster{}
	cluster.Namespace, cluster.Name = name.Namespace, name.Name
	if err := s.Client.Delete(ctx, cluster); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting %s: %w", name, err)
	}
	return eventually.Wait(ctx, "the deletion of "+name.String(), func() (bool, string, error) {
		err := s.Client.Get(ctx, name, cluster)
		if apierrors.IsNotFound(err) {
			return true, "", nil
		}
		if err != nil {
			return false, "", client.IgnoreNotFound(err)
		}
		return false, Conditions(cluster.Status.Conditions), nil
	})
}
