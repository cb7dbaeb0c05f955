{{/* SPDX-License-Identifier: Apache-2.0 */}}

{{- define "capmaas.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{/* The first part of the names of the release's objects: short enough for what is added to it. */}}
{{- define "capmaas.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "capmaas.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "capmaas.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* Names of cluster-scoped objects end in the namespace: releases in different namespaces don't share them. */}}
{{- define "capmaas.clusterName" -}}
{{- printf "%s-%s.%s" (include "capmaas.fullname" .root) .name .root.Release.Namespace }}
{{- end }}

{{- define "capmaas.serviceAccountName" -}}
{{- default (printf "%s-manager" (include "capmaas.fullname" .)) .Values.serviceAccount.name }}
{{- end }}

{{- define "capmaas.selectorLabels" -}}
app.kubernetes.io/name: {{ include "capmaas.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
control-plane: controller-manager
{{- end }}

{{- define "capmaas.labels" -}}
app.kubernetes.io/name: {{ include "capmaas.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: capmaas
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
cluster.x-k8s.io/provider: infrastructure-maas
{{- end }}

{{/* The reference of an image, of what values say about it. */}}
{{- define "capmaas.image" -}}
{{- if .image.digest }}
{{- printf "%s@%s" .image.repository .image.digest }}
{{- else }}
{{- printf "%s:%s" .image.repository (default .root.Chart.AppVersion .image.tag) }}
{{- end }}
{{- end }}

{{/* The objects that the manager's credentials are read from, whether the chart makes them or not. */}}
{{- define "capmaas.credentialsSecret" -}}
{{- default "maas-credentials" .Values.maas.existingSecret }}
{{- end }}

{{- define "capmaas.configMap" -}}
{{- default "capmaas-config" .Values.maas.existingConfigMap }}
{{- end }}

{{/* The LXD initializer's objects. A release that is named after the initializer does not have its name twice. */}}
{{- define "capmaas.lxdInitializer.name" -}}
{{- $fullname := include "capmaas.fullname" . }}
{{- if contains "lxd-initializer" $fullname }}
{{- $fullname }}
{{- else }}
{{- printf "%s-lxd-initializer" $fullname }}
{{- end }}
{{- end }}

{{- define "capmaas.lxdInitializer.clusterName" -}}
{{- printf "%s.%s" (include "capmaas.lxdInitializer.name" .) .Release.Namespace }}
{{- end }}

{{- define "capmaas.lxdInitializer.selectorLabels" -}}
app.kubernetes.io/name: {{ include "capmaas.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app: lxd-initializer
{{- end }}

{{/* Without the provider's label: clusterctl deletes what has it, and the initializer also runs where clusterctl does not know it. */}}
{{- define "capmaas.lxdInitializer.labels" -}}
{{- omit (include "capmaas.labels" . | fromYaml) "cluster.x-k8s.io/provider" | toYaml }}
app.kubernetes.io/component: lxd-initializer
app: lxd-initializer
{{- end }}

{{/*
The manager's rules, as generated from the code, in two lists: what is asked of objects in namespaces, and what is
asked of the cluster as such and can't be granted in a namespace.
*/}}
{{- define "capmaas.rules" -}}
{{- $clusterGroups := list "authentication.k8s.io" "authorization.k8s.io" "apiextensions.k8s.io" }}
{{- $cluster := list }}
{{- $namespaced := list }}
{{- $files := list "files/rbac/role.yaml" }}
{{- if .Values.evacuation.enabled }}
{{- $files = append $files "files/rbac/evacuation.yaml" }}
{{- end }}
{{- range $file := $files }}
{{- range (required (printf "%s is missing or empty: make generate" $file) ($.Files.Get $file) | fromYaml).rules }}
{{- if or .nonResourceURLs (has (first .apiGroups) $clusterGroups) (has "namespaces" .resources) }}
{{- $cluster = append $cluster . }}
{{- else }}
{{- $namespaced = append $namespaced . }}
{{- end }}
{{- end }}
{{- end }}
{{- dict "cluster" $cluster "namespaced" $namespaced | toYaml }}
{{- end }}

{{/*
A memory limit is told to the Go runtime, too: it collects garbage in time rather than be killed. Not where the user's own env does.
*/}}
{{- define "capmaas.memoryLimit" -}}
{{- $given := false }}
{{- range .env }}
{{- if eq .name "GOMEMLIMIT" }}
{{- $given = true }}
{{- end }}
{{- end }}
{{- if and ((.resources).limits).memory (not $given) -}}
- name: GOMEMLIMIT
  valueFrom:
    resourceFieldRef:
      resource: limits.memory
{{- end }}
{{- end }}

{{/* What the pods that are the manager's program have in common. */}}
{{- define "capmaas.podSecurityContext" -}}
runAsNonRoot: true
{{- if .Values.fixedIDs }}
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* How many milliseconds a duration has. */}}
{{- define "capmaas.milliseconds" -}}
{{- $sum := 0.0 }}
{{- range regexFindAll "[0-9.]+(ms|s|m|h)" . -1 }}
{{- $unit := get (dict "ms" 1.0 "s" 1000.0 "m" 60000.0 "h" 3600000.0) (regexFind "[a-z]+" .) }}
{{- $sum = addf $sum (mulf (regexFind "[0-9.]+" . | float64) $unit) }}
{{- end }}
{{- $sum }}
{{- end }}

{{/* Fails if one of the durations in a dict, by the values' names, is 0. */}}
{{- define "capmaas.checkDurations" -}}
{{- range $name, $duration := . }}
{{- if not (regexMatch "[1-9]" $duration) }}
{{- fail (printf "%s is %s: give a time, such as 1m" $name $duration) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Each program of a pod listens on several ports: fails if two of them, in a dict by the values' names, are one. */}}
{{- define "capmaas.checkPorts" -}}
{{- $taken := dict }}
{{- range $name, $port := . }}
{{- with get $taken (toString $port) }}
{{- fail (printf "%s and %s are both %v: give one of them another port" . $name $port) }}
{{- end }}
{{- $_ := set $taken (toString $port) $name }}
{{- end }}
{{- end }}

{{- define "capmaas.containerSecurityContext" -}}
allowPrivilegeEscalation: false
capabilities:
  drop:
    - ALL
privileged: false
readOnlyRootFilesystem: true
{{- end }}

{{- define "capmaas.volumeMounts" -}}
- name: credentials
  mountPath: /etc/capmaas/credentials
  readOnly: true
- name: config
  mountPath: /etc/capmaas/config
  readOnly: true
{{- end }}

{{- define "capmaas.volumes" -}}
- name: credentials
  secret:
    secretName: {{ include "capmaas.credentialsSecret" . }}
    defaultMode: 0440
    optional: true
- name: config
  configMap:
    name: {{ include "capmaas.configMap" . }}
    optional: true
{{- end }}

{{/* Of a NetworkPolicy, what is the same for both programs: they are asked for health and metrics, and ask DNS and what is in "to". */}}
{{- define "capmaas.networkPolicy" -}}
{{- $policy := .root.Values.networkPolicy -}}
policyTypes: [Ingress, Egress]
ingress:
  - ports:
      - port: {{ .ports.health }}
        protocol: TCP
  - ports:
      - port: {{ .ports.metrics }}
        protocol: TCP
    {{- with $policy.metricsFrom }}
    from:
      {{- toYaml . | nindent 6 }}
    {{- end }}
egress:
  - ports:
      - port: 53
        protocol: UDP
      - port: 53
        protocol: TCP
  {{- range .to }}
  - ports:
      {{- range .ports }}
      - port: {{ . }}
        protocol: TCP
      {{- end }}
    {{- with .cidrs }}
    to:
      {{- range . }}
      - ipBlock:
          cidr: {{ . | quote }}
      {{- end }}
    {{- end }}
  {{- end }}
{{- end }}

{{- define "capmaas.scrape" -}}
path: /metrics
{{- with .interval }}
interval: {{ . }}
{{- end }}
{{- with .scrapeTimeout }}
scrapeTimeout: {{ . }}
{{- end }}
{{- end }}
