// SPDX-License-Identifier: Apache-2.0

package packaging

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	infrav1 "github.com/capmaas/cluster-api-provider-maas/api/v1beta1"
	"github.com/capmaas/cluster-api-provider-maas/test/eventually"
)

const clusterCRD = "maasclusters.infrastructure.cluster.x-k8s.io"

func upgradeChart(t *testing.T, to *chart.Chart, v values) {
	t.Helper()
	configuration, err := helmConfiguration(releaseNamespace)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := newUpgrade(configuration).RunWithContext(t.Context(), releaseName, to, v); err != nil {
		t.Fatalf("upgrading with %v: %v", v, err)
	}
}

// newUpgrade returns an upgrade to a chart with its own values.
func newUpgrade(configuration *action.Configuration) *action.Upgrade {
	upgrade := action.NewUpgrade(configuration)
	upgrade.Namespace, upgrade.ResetValues = releaseNamespace, true
	return upgrade
}

// thisChart returns the present chart.
func thisChart(t *testing.T) *chart.Chart {
	t.Helper()
	capmaas, err := loadChart()
	if err != nil {
		t.Fatal(err)
	}
	return capmaas
}

// nextChart is a later version of the chart, whose CRD MaasCluster has another column.
func nextChart(t *testing.T) *chart.Chart {
	t.Helper()
	return laterChart(t, func(crd *apiextensionsv1.CustomResourceDefinition) {
		if crd.Name == clusterCRD {
			columns := &crd.Spec.Versions[0].AdditionalPrinterColumns
			*columns = append(*columns, apiextensionsv1.CustomResourceColumnDefinition{Name: "Next", Type: "string", JSONPath: ".metadata.name"})
		}
	})
}

// laterChart is a later version of the chart, with other CRDs.
func laterChart(t *testing.T, change func(*apiextensionsv1.CustomResourceDefinition)) *chart.Chart {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "capmaas")
	if err := os.CopyFS(dir, os.DirFS(chartDir)); err != nil {
		t.Fatal(err)
	}
	paths, err := filepath.Glob(filepath.Join(dir, "files", "crds", "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		crd := apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(content, &crd); err != nil {
			t.Fatal(err)
		}
		change(&crd)
		if content, err = yaml.Marshal(crd); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	later, err := loader.LoadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	later.Metadata.Version, later.Metadata.AppVersion = "0.2.0", "v0.2.0"
	return later
}

// precious makes a MaasCluster of a user, and returns it.
func precious(t *testing.T) *infrav1.MaasCluster {
	t.Helper()
	cluster := &infrav1.MaasCluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: newNamespace(t), Name: "precious"},
		Spec:       infrav1.MaasClusterSpec{DNSDomain: "maas"},
	}
	if err := management.Create(t.Context(), cluster); err != nil {
		t.Fatal(err)
	}
	return cluster
}

// checkKept checks that the same object exists and is not being deleted.
func checkKept(t *testing.T, cluster *infrav1.MaasCluster, uid types.UID) {
	t.Helper()
	err := management.Get(t.Context(), client.ObjectKeyFromObject(cluster), cluster)
	if err != nil || cluster.UID != uid || cluster.DeletionTimestamp != nil {
		t.Fatalf("the user's MaasCluster is not what it was (%v): uid %s, want %s; deleted %v", err, cluster.UID, uid, cluster.DeletionTimestamp)
	}
}

// state is what an upgrade and a rollback change.
type state struct {
	image, pollIdle string
	replicas        int32
	budget, column  bool
}

func installedState(ctx context.Context) (state, error) {
	manager := client.ObjectKey{Namespace: releaseNamespace, Name: "capmaas-controller-manager"}
	d, crd := &appsv1.Deployment{}, &apiextensionsv1.CustomResourceDefinition{}
	if err := errors.Join(management.Get(ctx, manager, d), management.Get(ctx, client.ObjectKey{Name: clusterCRD}, crd)); err != nil {
		return state{}, err
	}
	err := management.Get(ctx, manager, &policyv1.PodDisruptionBudget{})
	if client.IgnoreNotFound(err) != nil {
		return state{}, err
	}
	container := d.Spec.Template.Spec.Containers[0]
	s := state{image: container.Image, replicas: *d.Spec.Replicas, budget: err == nil}
	for _, arg := range container.Args {
		if value, ok := strings.CutPrefix(arg, "--poll-idle="); ok {
			s.pollIdle = value
		}
	}
	s.column = slices.ContainsFunc(crd.Spec.Versions[0].AdditionalPrinterColumns, func(c apiextensionsv1.CustomResourceColumnDefinition) bool {
		return c.Name == "Next"
	})
	return s, nil
}

func checkState(t *testing.T, want state) {
	t.Helper()
	got, err := installedState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("installed is %+v, want %+v", got, want)
	}
}

// A later version with other values is installed, CRDs included, and rolled back; the user's objects don't change.
func TestUpgradeAndRollback(t *testing.T) {
	cluster := precious(t)
	uid := cluster.UID
	before := state{image: "capmaas-manager:v0.1.0", pollIdle: "1m", replicas: 1}
	checkState(t, before)

	upgradeChart(t, nextChart(t), values{"replicas": 2, "manager": values{"pollIdle": "2m"}})
	checkState(t, state{image: "capmaas-manager:v0.2.0", pollIdle: "2m", replicas: 2, budget: true, column: true})
	checkKept(t, cluster, uid)

	configuration, err := helmConfiguration(releaseNamespace)
	if err != nil {
		t.Fatal(err)
	}
	if err := action.NewRollback(configuration).Run(releaseName); err != nil {
		t.Fatalf("rolling back: %v", err)
	}
	checkState(t, before)
	checkKept(t, cluster, uid)
}

// A value that is taken out of the chart is taken out of the cluster, key by key.
func TestWhatIsTakenOutOfTheChartGoes(t *testing.T) {
	const certificate = "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"
	for _, step := range []struct {
		maas values
		want map[string][]byte
	}{
		{values{"apiKey": "a:b:c", "caBundle": certificate}, map[string][]byte{"apiKey": []byte("a:b:c"), "caBundle": []byte(certificate)}},
		{values{"apiKey": "d:e:f"}, map[string][]byte{"apiKey": []byte("d:e:f")}},
		{values{}, nil},
	} {
		upgradeChart(t, thisChart(t), values{"maas": step.maas})
		secret := &corev1.Secret{}
		err := management.Get(t.Context(), client.ObjectKey{Namespace: releaseNamespace, Name: "maas-credentials"}, secret)
		if client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, secret.Data); diff != "" {
			t.Errorf("with %v (-want +got):\n%s", step.maas, diff)
		}
	}
}

// Values that name the Secret or the ConfigMap of the release as ones of the user make them the user's if they are kept
// first.
func TestWhatTheChartMadeCanBecomeTheUsers(t *testing.T) {
	made := values{"apiKey": "a:b:c", "endpoint": "http://maas.example.com:5240/MAAS"}
	for name, tc := range map[string]struct {
		object client.Object
		values values
	}{
		"the Secret":    {&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "maas-credentials"}}, values{"existingSecret": "maas-credentials", "endpoint": made["endpoint"]}},
		"the ConfigMap": {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "capmaas-config"}}, values{"existingConfigMap": "capmaas-config", "apiKey": made["apiKey"]}},
	} {
		t.Run(name, func(t *testing.T) {
			upgradeChart(t, thisChart(t), values{"maas": made})
			object := tc.object
			object.SetNamespace(releaseNamespace)
			keep := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"helm.sh/resource-policy":"keep"}}}`))
			if err := management.Patch(t.Context(), object, keep); err != nil {
				t.Fatal(err)
			}
			upgradeChart(t, thisChart(t), values{"maas": tc.values})
			if err := management.Get(t.Context(), client.ObjectKeyFromObject(object), object); err != nil {
				t.Errorf("it is kept, and reading it ends with %v", err)
			}
			if err := management.Delete(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			upgradeChart(t, thisChart(t), nil)
		})
	}
}

// crds.install: false removes the CRDs from the release and leaves them in the cluster; crds.keep: false makes an
// uninstallation delete them, and all clusters.
func TestCRDsGoOnlyWhenTheyAreNotKept(t *testing.T) {
	cluster := precious(t)
	uid := cluster.UID
	keptBy := func() string {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := management.Get(t.Context(), client.ObjectKey{Name: clusterCRD}, crd); err != nil {
			t.Fatal(err)
		}
		return crd.Annotations["helm.sh/resource-policy"]
	}
	for _, step := range []struct {
		crds values
		kept string
	}{
		{values{"install": false}, "keep"},
		{values{"install": false, "keep": false}, "keep"},
		{values{"install": true}, "keep"},
		{values{"keep": false}, ""},
		{values{"keep": true}, "keep"},
		{values{"keep": false}, ""},
	} {
		upgradeChart(t, thisChart(t), values{"crds": step.crds})
		if kept := keptBy(); kept != step.kept {
			t.Errorf("with %v the CRD has the resource policy %q, want %q", step.crds, kept, step.kept)
		}
		checkKept(t, cluster, uid)
	}

	// Whatever the result, the tests after this one find the chart installed.
	t.Cleanup(func() {
		if err := installChart(context.Background(), releaseName, releaseNamespace, nil); err != nil {
			t.Fatalf("installing again: %v", err)
		}
		err := eventually.Wait(context.Background(), "the CRDs to be served again", func() (bool, string, error) {
			err := management.List(context.Background(), &infrav1.MaasClusterList{})
			return err == nil, fmt.Sprint(err), nil
		})
		if err != nil {
			t.Error(err)
		}
	})
	if err := uninstallChart(releaseName, releaseNamespace); err != nil {
		t.Fatal(err)
	}
	eventually.Succeeds(t, "the CRDs go with the release", func(ctx context.Context) error {
		err := management.Get(ctx, client.ObjectKey{Name: clusterCRD}, &apiextensionsv1.CustomResourceDefinition{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the CRD MaasCluster is there (%w)", err)
		}
		return nil
	})
}

// The CRDs in Chart.yaml, which Artifact Hub shows, are those of the chart.
func TestArtifactHubKnowsTheCRDs(t *testing.T) {
	var shown []struct{ Kind, Version, Name, DisplayName, Description string }
	if err := yaml.UnmarshalStrict([]byte(thisChart(t).Metadata.Annotations["artifacthub.io/crds"]), &shown); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, crd := range shown {
		names[crd.Name] = crd.Kind + " " + crd.Version
	}
	rendered := ofKind(mustRender(t, nil), "CustomResourceDefinition")
	for _, o := range rendered {
		crd := apiextensionsv1.CustomResourceDefinition{}
		convert(t, o, &crd)
		if want := crd.Spec.Names.Kind + " " + crd.Spec.Versions[0].Name; names[crd.Name] != want {
			t.Errorf("%s is shown as %q, want %q", crd.Name, names[crd.Name], want)
		}
	}
	if len(names) != len(rendered) {
		t.Errorf("%d CRDs are shown, the chart has %d", len(names), len(rendered))
	}
}
