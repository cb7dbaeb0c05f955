// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path"
	"strings"
)

// release says where a project has a tool's official release.
type release struct {
	// url and member have {version}, {number} (the version without its v), {os} and {arch}.
	url string
	// member is the program's path in the archive. Without it, what is downloaded is the program.
	member string
	// linuxOnly is set where there is none for macOS, or not in this form.
	linuxOnly bool
}

const github = "https://github.com/"

var kubernetes = release{url: "https://dl.k8s.io/release/{version}/bin/{os}/{arch}/{program}", linuxOnly: true}

// releaseOf returns what is known about a tool, also about that of the previous Kubernetes.
func releaseOf(tool string) (program string, r release, ok bool) {
	program = strings.TrimPrefix(tool, "previous-")
	r, ok = releases[program]
	return program, r, ok
}

var releases = map[string]release{
	"kube-apiserver":          kubernetes,
	"kube-controller-manager": kubernetes,
	"kubectl":                 {url: kubernetes.url},
	"kubelet":                 kubernetes,
	"kubeadm":                 kubernetes,
	"kube-scheduler":          kubernetes,
	"kube-proxy":              kubernetes,
	"etcd": {
		url:    github + "etcd-io/etcd/releases/download/{version}/etcd-{version}-{os}-{arch}.tar.gz",
		member: "etcd-{version}-{os}-{arch}/etcd", linuxOnly: true,
	},
	"clusterctl":     {url: github + "kubernetes-sigs/cluster-api/releases/download/{version}/clusterctl-{os}-{arch}"},
	"controller-gen": {url: github + "kubernetes-sigs/controller-tools/releases/download/{version}/controller-gen-{os}-{arch}"},
	"cosign":         {url: github + "sigstore/cosign/releases/download/{version}/cosign-{os}-{arch}"},
	"helm":           {url: "https://get.helm.sh/helm-{version}-{os}-{arch}.tar.gz", member: "{os}-{arch}/helm"},
	"kustomize": {
		url:    github + "kubernetes-sigs/kustomize/releases/download/kustomize%2F{version}/kustomize_{version}_{os}_{arch}.tar.gz",
		member: "kustomize",
	},
	"golangci-lint": {
		url:    github + "golangci/golangci-lint/releases/download/{version}/golangci-lint-{number}-{os}-{arch}.tar.gz",
		member: "golangci-lint-{number}-{os}-{arch}/golangci-lint",
	},
	"actionlint": {
		url:    github + "rhysd/actionlint/releases/download/{version}/actionlint_{number}_{os}_{arch}.tar.gz",
		member: "actionlint",
	},
	"cyclonedx-gomod": {
		url:    github + "CycloneDX/cyclonedx-gomod/releases/download/{version}/cyclonedx-gomod_{number}_{os}_{arch}.tar.gz",
		member: "cyclonedx-gomod",
	},
	"krew": {
		url:    github + "kubernetes-sigs/krew/releases/download/{version}/krew-{os}_{arch}.tar.gz",
		member: "krew-{os}_{arch}",
	},
}

// platforms are those that are pinned.
func (r release) platforms() []string {
	if r.linuxOnly {
		return []string{"linux/amd64", "linux/arm64"}
	}
	return []string{"darwin/amd64", "darwin/arm64", "linux/amd64", "linux/arm64"}
}

// place returns the address of a release, and the program's path in it.
func place(p pinned) (url, member string, err error) {
	program, r, ok := releaseOf(p.tool)
	if !ok {
		return "", "", fmt.Errorf("nothing is known about releases of %s", p.tool)
	}
	system, arch := path.Split(p.platform)
	fill := strings.NewReplacer("{version}", p.version, "{number}", strings.TrimPrefix(p.version, "v"),
		"{os}", strings.TrimSuffix(system, "/"), "{arch}", arch, "{program}", program)
	return fill.Replace(r.url), fill.Replace(r.member), nil
}
