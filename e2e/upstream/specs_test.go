// SPDX-License-Identifier: Apache-2.0

package upstream_test

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/onsi/ginkgo/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/cluster-api/test/e2e"
	"sigs.k8s.io/cluster-api/test/framework"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
)

// none is the flavor without a name.
const none = "default"

// quick labels the spec of `make test`: it shows that the specs run. What the others prove, other tests prove there.
var quick = ginkgo.Label("quick")

// describe describes a spec with a flavor. Both are a row of the table of results.
func describe(spec, flavor string, body func(context.Context), labels ...string) bool {
	return ginkgo.Describe(spec, ginkgo.Offset(1), ginkgo.Label(labels...), func() {
		ginkgo.Context(flavor, func() { body(context.Background()) })
	})
}

// flavorOf is how clusterctl calls a flavor.
func flavorOf(name string) string { return strings.TrimPrefix(name, none) }

func quickStart(flavor string, after func(framework.ClusterProxy, string, string)) func(context.Context) {
	return func(ctx context.Context) {
		e2e.QuickStartSpec(ctx, func() e2e.QuickStartSpecInput {
			return e2e.QuickStartSpecInput{
				E2EConfig: here.config, ClusterctlConfigPath: here.clusterctl, BootstrapClusterProxy: here.proxy, ArtifactFolder: here.artifacts,
				InfrastructureProvider: &infrastructure, PostNamespaceCreated: here.addNetwork,
				Flavor: ptr.To(flavorOf(flavor)), PostMachinesProvisioned: after,
			}
		})
	}
}

var (
	_ = describe("QuickStartSpec", "lxd", quickStart("lxd", nil))
	_ = describe("QuickStartSpec", "default", quickStart("default", nil))
	_ = describe("QuickStartSpec", "topology", quickStart("topology", nil))
	_ = describe("QuickStartSpec", "lxd-topology", quickStart("lxd-topology", nil))
	_ = describe("QuickStartSpec", "lxd; owners and finalizers are removed", quickStart("lxd", resilience(false)))
	_ = describe("QuickStartSpec", "topology; owners and finalizers are removed", quickStart("topology", resilience(true)))
)

func scale(flavor string) func(context.Context) {
	return func(ctx context.Context) {
		e2e.MachineDeploymentScaleSpec(ctx, func() e2e.MachineDeploymentScaleSpecInput {
			return e2e.MachineDeploymentScaleSpecInput{
				E2EConfig: here.config, ClusterctlConfigPath: here.clusterctl, BootstrapClusterProxy: here.proxy, ArtifactFolder: here.artifacts,
				InfrastructureProvider: &infrastructure, PostNamespaceCreated: here.addNetwork,
				Flavor: flavorOf(flavor),
			}
		})
	}
}

var (
	_ = describe("MachineDeploymentScaleSpec", "default", scale("default"))
	_ = describe("MachineDeploymentScaleSpec", "lxd", scale("lxd"), quick...)
)

var _ = describe("KCPAndMachineDeploymentRolloutSpec", "default, with taints", func(ctx context.Context) {
	e2e.KCPAndMachineDeploymentRolloutSpec(ctx, func() e2e.KCPAndMachineDeploymentRolloutSpecInput {
		return e2e.KCPAndMachineDeploymentRolloutSpecInput{
			E2EConfig: here.config, ClusterctlConfigPath: here.clusterctl, BootstrapClusterProxy: here.proxy, ArtifactFolder: here.artifacts,
			InfrastructureProvider: &infrastructure, PostNamespaceCreated: here.addNetwork,
			Flavor: flavorTaints,
		}
	})
})

// upgrade leaves out Kubernetes' conformance tests: they test the images.
func upgrade(flavor string, controlPlanes, workers int64) func(context.Context) {
	return func(ctx context.Context) {
		e2e.ClusterUpgradeConformanceSpec(ctx, func() e2e.ClusterUpgradeConformanceSpecInput {
			config, variables := here.config, map[string]string{imageVariable: here.config.Variables[imageByVersionVariable]}
			if flavor == flavorUpgrade {
				config, variables = here.with(map[string]string{
					e2e.CPMachineTemplateUpgradeTo: controlPlaneUpgradeTo, e2e.WorkersMachineTemplateUpgradeTo: workersUpgradeTo,
				}), nil
			}
			return e2e.ClusterUpgradeConformanceSpecInput{
				E2EConfig: config, ClusterctlConfigPath: here.clusterctl, BootstrapClusterProxy: here.proxy, ArtifactFolder: here.artifacts,
				InfrastructureProvider: &infrastructure, PostNamespaceCreated: here.addNetwork,
				Flavor: &flavor, ClusterctlVariables: variables, SkipConformanceTests: true,
				ControlPlaneMachineCount: &controlPlanes, WorkerMachineCount: &workers,
			}
		})
	}
}

var (
	_ = describe("ClusterUpgradeConformanceSpec", "topology, 1 control plane", upgrade("topology", 1, 1))
	_ = describe("ClusterUpgradeConformanceSpec", "lxd-topology, 3 control planes", upgrade("lxd-topology", 3, 1))
	_ = describe("ClusterUpgradeConformanceSpec", "topology, 3 control planes, no surge", upgrade(flavorScaleIn, 3, 1))
	_ = describe("ClusterUpgradeConformanceSpec", "default, 1 control plane", upgrade(flavorUpgrade, 1, 1))
)

func deletion(flavor string, controlPlanes int64) func(context.Context) {
	return func(ctx context.Context) {
		e2e.ClusterDeletionSpec(ctx, func() e2e.ClusterDeletionSpecInput {
			return e2e.ClusterDeletionSpecInput{
				E2EConfig: here.config, ClusterctlConfigPath: here.clusterctl, BootstrapClusterProxy: here.proxy, ArtifactFolder: here.artifacts,
				InfrastructureProvider: &infrastructure, PostNamespaceCreated: here.addNetwork,
				Flavor: ptr.To(flavorOf(flavor)), ControlPlaneMachineCount: &controlPlanes,
				ClusterDeletionPhases: []e2e.ClusterDeletionPhase{
					deletionPhase("Machine", []string{"MachineDeployment", "MachineSet"}, "MachineDeployment", "MachineSet"),
					deletionPhase("Machine", []string{"KubeadmControlPlane"}, "KubeadmControlPlane"),
					deletionPhase("MaasCluster", nil),
				},
			}
		})
	}
}

// deletionPhase has objects of a kind, with one of the owners if any are given, and the further kinds deleted together.
// The former hold it up.
func deletionPhase(kind string, owners []string, further ...string) e2e.ClusterDeletionPhase {
	owned := func(found []metav1.OwnerReference) bool {
		return owners == nil || slices.ContainsFunc(found, func(owner metav1.OwnerReference) bool { return slices.Contains(owners, owner.Kind) })
	}
	return e2e.ClusterDeletionPhase{
		ObjectFilter: func(object corev1.ObjectReference, found []metav1.OwnerReference) bool {
			return (object.Kind == kind && owned(found)) || slices.Contains(further, object.Kind)
		},
		BlockingObjectFilter: func(object corev1.ObjectReference, _ []metav1.OwnerReference) bool { return object.Kind == kind },
	}
}

var (
	_ = describe("ClusterDeletionSpec", "default", deletion("default", 1))
	_ = describe("ClusterDeletionSpec", "lxd-topology, 3 control planes", deletion("lxd-topology", 3))
)

var _ = describe("MachineDeploymentRemediationSpec", "default", func(ctx context.Context) {
	e2e.MachineDeploymentRemediationSpec(ctx, func() e2e.MachineDeploymentRemediationSpecInput {
		return e2e.MachineDeploymentRemediationSpecInput{
			E2EConfig: here.config, ClusterctlConfigPath: here.clusterctl, BootstrapClusterProxy: here.proxy, ArtifactFolder: here.artifacts,
			InfrastructureProvider: &infrastructure, PostNamespaceCreated: here.addNetwork,
			Flavor: ptr.To(flavorRemediateWorkers),
		}
	})
})

func remediation(flavor string) func(context.Context) {
	return func(ctx context.Context) {
		e2e.KCPRemediationSpec(ctx, func() e2e.KCPRemediationSpecInput {
			return e2e.KCPRemediationSpecInput{
				E2EConfig: here.config, ClusterctlConfigPath: here.clusterctl, BootstrapClusterProxy: here.proxy, ArtifactFolder: here.artifacts,
				InfrastructureProvider: &infrastructure, PostNamespaceCreated: here.addNetwork,
				Flavor: &flavor,
			}
		})
	}
}

var (
	_ = describe("KCPRemediationSpec", "default", remediation(flavorRemediateControlPlanes))
	_ = describe("KCPRemediationSpec", "lxd", remediation("lxd-"+flavorRemediateControlPlanes))
)

var _ = describe("ClusterClassChangesSpec", "topology", func(ctx context.Context) {
	e2e.ClusterClassChangesSpec(ctx, func() e2e.ClusterClassChangesSpecInput {
		return e2e.ClusterClassChangesSpecInput{
			E2EConfig: here.config, ClusterctlConfigPath: here.clusterctl, BootstrapClusterProxy: here.proxy, ArtifactFolder: here.artifacts,
			InfrastructureProvider: &infrastructure, PostNamespaceCreated: here.addNetwork,
			Flavor:                   flavorClass,
			ModifyControlPlaneFields: map[string]any{"spec.kubeadmConfigSpec.verbosity": int64(4)},
			ModifyMachineDeploymentBootstrapConfigTemplateFields:       map[string]any{"spec.template.spec.verbosity": int64(4)},
			ModifyMachineDeploymentInfrastructureMachineTemplateFields: map[string]any{"spec.template.spec.failureDomain": here.config.Variables[zoneVariable]},
		}
	})
})

var _ = describe("ClusterClassRolloutSpec", "topology, with taints", func(ctx context.Context) {
	e2e.ClusterClassRolloutSpec(ctx, func() e2e.ClusterClassRolloutSpecInput {
		return e2e.ClusterClassRolloutSpecInput{
			E2EConfig: here.config, ClusterctlConfigPath: here.clusterctl, BootstrapClusterProxy: here.proxy, ArtifactFolder: here.artifacts,
			InfrastructureProvider: &infrastructure, PostNamespaceCreated: here.addNetwork,
			Flavor: flavorTopologyTaints, FilterMetadataBeforeValidation: withoutOurs,
		}
	})
})

// withoutOurs leaves out what the provider adds to an object: the spec knows what Cluster API does.
func withoutOurs(object client.Object) clusterv1.ObjectMeta {
	names := []string{clusterctlv1.BlockMoveAnnotation, infrav1.HostLabel, infrav1.ResourcePoolLabel, corev1.LabelTopologyZone}
	ours := func(name, _ string) bool {
		return strings.HasPrefix(name, "capmaas.io/") || slices.Contains(names, name)
	}
	labels, annotations := maps.Clone(object.GetLabels()), maps.Clone(object.GetAnnotations())
	maps.DeleteFunc(labels, ours)
	maps.DeleteFunc(annotations, ours)
	return clusterv1.ObjectMeta{Labels: labels, Annotations: annotations}
}

var _ = describe("ScaleSpec", "lxd-topology, 10 clusters, 5 at once", func(ctx context.Context) {
	e2e.ScaleSpec(ctx, func() e2e.ScaleSpecInput {
		return e2e.ScaleSpecInput{
			E2EConfig: here.config, ClusterctlConfigPath: here.clusterctl, BootstrapClusterProxy: here.proxy, ArtifactFolder: here.artifacts,
			InfrastructureProvider: &infrastructure, PostNamespaceCreated: here.addNetwork,
			Flavor: ptr.To("lxd-" + flavorImageByVersion), ClusterCount: ptr.To[int64](10), Concurrency: ptr.To[int64](5),
			MachineDeploymentCount: ptr.To[int64](1), WorkerPerMachineDeploymentCount: ptr.To[int64](1), FailFast: true,
		}
	})
})
