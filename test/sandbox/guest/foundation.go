// SPDX-License-Identifier: Apache-2.0

package guest

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// imageRegistry is never contacted: the control-plane provider reads the references of images.
const imageRegistry = "registry.k8s.io"

// createFoundation makes the namespaces of every cluster, and what its founder installs.
func (c *cluster) createFoundation(version string) error {
	objects := []client.Object{}
	for _, name := range []string{metav1.NamespaceDefault, metav1.NamespacePublic, metav1.NamespaceSystem} {
		objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, object := range append(objects, c.founder.foundation(version)...) {
		if err := create(c.objects, object); err != nil {
			return err
		}
	}
	return nil
}

// system names an object of the control plane.
func system(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}
}

// foundation is what kubeadm init uploads, and installs.
func (r *kubeadmRun) foundation(version string) []client.Object {
	getNodes := "kubeadm:get-nodes"
	return []client.Object{
		&rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: getNodes},
			Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"nodes"}}},
		},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: getNodes},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: getNodes},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, Name: "system:bootstrappers:kubeadm:default-node-token"}},
		},
		&corev1.ConfigMap{ObjectMeta: system("kubeadm-config"), Data: map[string]string{"ClusterConfiguration": r.clusterDocument}},
		&corev1.ConfigMap{ObjectMeta: system("coredns"), Data: map[string]string{"Corefile": ".:53 {\n    kubernetes cluster.local\n}\n"}},
		&appsv1.DaemonSet{ObjectMeta: system("kube-proxy"), Spec: appsv1.DaemonSetSpec{
			Selector: selector("kube-proxy"), Template: podTemplate("kube-proxy", imageRegistry+"/kube-proxy:"+version),
		}},
		&appsv1.Deployment{ObjectMeta: system("coredns"), Spec: appsv1.DeploymentSpec{
			Selector: selector("coredns"), Template: podTemplate("coredns", imageRegistry+"/coredns/coredns:v1.12.0"),
		}},
	}
}

func appLabels(name string) map[string]string { return map[string]string{"k8s-app": name} }

func selector(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: appLabels(name)}
}

func podTemplate(name, image string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: appLabels(name)},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: image}}},
	}
}
