// SPDX-License-Identifier: Apache-2.0

package rights

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// served is what an API server has.
var served = []*metav1.APIResourceList{
	{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "pods", Verbs: metav1.Verbs{"get", "list"}}, {Name: "pods/log", Verbs: metav1.Verbs{"get"}}, {Name: "pods/status", Verbs: metav1.Verbs{"patch"}},
	}},
	{GroupVersion: "apps/v1", APIResources: []metav1.APIResource{
		{Name: "deployments", Verbs: metav1.Verbs{"get"}}, {Name: "deployments/status", Verbs: metav1.Verbs{"patch"}},
	}},
	{GroupVersion: "apps/v1beta1", APIResources: []metav1.APIResource{{Name: "deployments", Verbs: metav1.Verbs{"get"}}}},
}

func TestExpand(t *testing.T) {
	for name, tt := range map[string]struct {
		rule      rbacv1.PolicyRule
		namespace string
		want      []string
	}{
		"each verb of each resource": {
			rule: rbacv1.PolicyRule{APIGroups: []string{"", "apps"}, Resources: []string{"pods", "pods/log"}, Verbs: []string{"get", "watch"}},
			want: []string{"get pods", "watch pods", "get pods/log", "watch pods/log", "get pods.apps", "watch pods.apps", "get pods/log.apps", "watch pods/log.apps"},
		},
		"what nobody serves": {
			rule: rbacv1.PolicyRule{APIGroups: []string{"none"}, Resources: []string{"things"}, Verbs: []string{"get"}},
			want: []string{"get things.none"},
		},
		"each name, in one namespace": {
			rule:      rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{"a", "b"}, Verbs: []string{"get"}},
			namespace: "here",
			want:      []string{"get pods a in here", "get pods b in here"},
		},
		"all verbs": {
			rule: rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"*"}},
			want: []string{"get pods", "list pods"},
		},
		"all resources of a group": {
			rule: rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"*"}, Verbs: []string{"get"}},
			want: []string{"get pods", "get pods/log", "get pods/status"},
		},
		"one subresource of all resources of all groups": {
			rule: rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*/status"}, Verbs: []string{"*"}},
			want: []string{"patch pods/status", "patch deployments/status.apps"},
		},
		"everything": {
			rule: rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}},
			want: []string{"get pods", "list pods", "get pods/log", "patch pods/status", "get deployments.apps", "patch deployments/status.apps"},
		},
		"paths": {
			rule: rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics", "/debug/*"}, Verbs: []string{"get"}},
			want: []string{"get /metrics", "get /debug/*"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, right := range Expand([]rbacv1.PolicyRule{tt.rule}, tt.namespace, served) {
				got = append(got, right.String())
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("rights (-want +got):\n%s", diff)
			}
		})
	}
}

func TestUnused(t *testing.T) {
	pods := Right{Verb: "get", Resource: "pods"}
	here := Right{Verb: "get", Resource: "pods", Namespace: "here"}
	one := Right{Verb: "get", Resource: "pods", Name: "one"}
	status := Right{Verb: "get", Resource: "pods/status"}
	debug := Right{Verb: "get", Path: "/debug/*"}
	for name, tt := range map[string]struct {
		rights, uses     []Right
		excused          map[string]string
		unused, needless []string
	}{
		"nothing":              {},
		"everywhere":           {rights: []Right{pods}, uses: []Right{{Verb: "get", Resource: "pods", Name: "a", Namespace: "b"}}},
		"another verb":         {rights: []Right{pods}, uses: []Right{{Verb: "list", Resource: "pods"}}, unused: []string{"get pods"}},
		"another group":        {rights: []Right{pods}, uses: []Right{{Verb: "get", Resource: "pods", Group: "metrics.k8s.io"}}, unused: []string{"get pods"}},
		"a subresource":        {rights: []Right{pods, status}, uses: []Right{{Verb: "get", Resource: "pods/status", Name: "a"}}, unused: []string{"get pods"}},
		"the namespace":        {rights: []Right{here}, uses: []Right{{Verb: "get", Resource: "pods", Namespace: "here"}}},
		"another namespace":    {rights: []Right{here}, uses: []Right{{Verb: "get", Resource: "pods", Namespace: "there"}}, unused: []string{"get pods in here"}},
		"all namespaces":       {rights: []Right{here}, uses: []Right{{Verb: "get", Resource: "pods"}}, unused: []string{"get pods in here"}},
		"the name":             {rights: []Right{one}, uses: []Right{{Verb: "get", Resource: "pods", Name: "one", Namespace: "here"}}},
		"another name":         {rights: []Right{one}, uses: []Right{{Verb: "get", Resource: "pods", Name: "two"}}, unused: []string{"get pods one"}},
		"a path":               {rights: []Right{debug}, uses: []Right{{Verb: "get", Path: "/debug/flags/v"}}},
		"another path":         {rights: []Right{debug}, uses: []Right{{Verb: "get", Path: "/metrics"}}, unused: []string{"get /debug/*"}},
		"no path":              {rights: []Right{debug}, uses: []Right{{Verb: "get", Resource: "pods"}}, unused: []string{"get /debug/*"}},
		"one of two":           {rights: []Right{pods, debug}, uses: []Right{pods}, unused: []string{"get /debug/*"}},
		"twice the same":       {rights: []Right{pods, pods}, uses: []Right{pods}},
		"excused":              {rights: []Right{pods}, excused: map[string]string{"get pods": "why"}},
		"excused and used":     {rights: []Right{pods}, uses: []Right{pods}, excused: map[string]string{"get pods": "why"}, needless: []string{"get pods"}},
		"excused, not granted": {rights: []Right{pods}, uses: []Right{pods}, excused: map[string]string{"get nodes": "why"}, needless: []string{"get nodes"}},
	} {
		t.Run(name, func(t *testing.T) {
			unused, needless := Unused(tt.rights, tt.uses, tt.excused)
			if diff := cmp.Diff(tt.unused, unused); diff != "" {
				t.Errorf("unused (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.needless, needless); diff != "" {
				t.Errorf("needlessly excused (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadLog(t *testing.T) {
	const (
		watch = `{"stage":"ResponseStarted","verb":"watch","requestURI":"/apis/apps/v1/deployments?watch=true","user":{"username":"u"},` +
			`"objectRef":{"resource":"deployments","apiGroup":"apps","apiVersion":"v1"},"responseStatus":{"code":200},"annotations":{"authorization.k8s.io/decision":"allow"}}`
		forbidden = `{"stage":"ResponseComplete","verb":"patch","requestURI":"/api/v1/namespaces/n/pods/p/status","user":{"username":"u"},` +
			`"objectRef":{"resource":"pods","namespace":"n","name":"p","apiVersion":"v1","subresource":"status"},"responseStatus":{"code":403,"message":"no"},"annotations":{"authorization.k8s.io/decision":"forbid"}}`
		byAdmission = `{"stage":"ResponseComplete","verb":"create","requestURI":"/api/v1/namespaces/n/pods","user":{"username":"u"},` +
			`"objectRef":{"resource":"pods","namespace":"n","apiVersion":"v1"},"responseStatus":{"code":403,"message":"policy"},"annotations":{"authorization.k8s.io/decision":"allow"}}`
		path = `{"stage":"ResponseComplete","verb":"get","requestURI":"/api?timeout=5s","user":{"username":"v"},"responseStatus":{"code":200},"annotations":{"authorization.k8s.io/decision":"allow"}}`
	)
	file := filepath.Join(t.TempDir(), "audit.log")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log := Open(file)
	if _, err := log.Read(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reading a log that is not there: %v", err)
	}
	first := watch + "\n" + forbidden + "\n"
	for _, tt := range []struct {
		content string
		want    []Request
	}{
		{first + byAdmission[:20], []Request{
			{User: "u", Use: Right{Verb: "watch", Group: "apps", Resource: "deployments"}},
			{User: "u", Use: Right{Verb: "patch", Resource: "pods/status", Name: "p", Namespace: "n"}, Denied: true, Why: "no"},
		}},
		{first + byAdmission + "\n" + path + "\n", []Request{
			{User: "u", Use: Right{Verb: "create", Resource: "pods", Namespace: "n"}, Denied: true, Why: "policy"},
			{User: "v", Use: Right{Verb: "get", Path: "/api"}},
		}},
	} {
		write(tt.content)
		got, err := log.Read()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
	}
	write(first + byAdmission + "\n" + path + "\nno JSON\n")
	if _, err := log.Read(); err == nil {
		t.Error("what is no event is read")
	}
}
