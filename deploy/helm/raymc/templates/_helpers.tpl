{{- define "raymc.fullname" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "raymc.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "raymc.labels" -}}
{{ include "raymc.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "raymc.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "raymc.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end -}}

{{- define "raymc.image" -}}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) -}}
{{- end -}}

{{- define "raymc.postgres" -}}
{{- if or .Values.store.url .Values.store.urlSecret.name -}}true{{- end -}}
{{- end -}}

{{- define "raymc.scheme" -}}
{{- ternary "https" "http" (not (empty .Values.tls.secretName)) -}}
{{- end -}}

{{- define "raymc.publicUrl" -}}
{{- $service := printf "%s://%s.%s.svc:%v" (include "raymc.scheme" .) (include "raymc.fullname" .) .Release.Namespace .Values.service.port -}}
{{- .Values.publicUrl | default $service -}}
{{- end -}}

{{/* True where jobs are files, which only SQLite needs. */}}
{{- define "raymc.volume" -}}
{{- if and .Values.persistence.enabled (not (include "raymc.postgres" .)) -}}true{{- end -}}
{{- end -}}

{{- define "raymc.claim" -}}
{{- .Values.persistence.existingClaim | default (printf "%s-state" (include "raymc.fullname" .)) -}}
{{- end -}}

{{/* What cannot work is refused here, with what to do, and not by a Pod that fails. */}}
{{- define "raymc.check" -}}
{{- if not .Values.config.clusters -}}
{{- fail "config.clusters is empty: name at least one Ray cluster, as in examples/kuberay-values.yaml" -}}
{{- end -}}
{{- if and (gt (int .Values.replicaCount) 1) (not (include "raymc.postgres" .)) -}}
{{- fail "more than one server needs PostgreSQL: set store.url (or store.urlSecret), or replicaCount=1" -}}
{{- end -}}
{{- if and .Values.store.url .Values.store.urlSecret.name -}}
{{- fail "set store.url or store.urlSecret.name, not both" -}}
{{- end -}}
{{- if regexMatch "^[a-z]+://[^/@]*:[^/@]*@" .Values.store.url -}}
{{- fail "store.url has a password in it, which everybody who reads this release could see: put it into a Secret and name that in store.passwordSecret" -}}
{{- end -}}
{{- if and .Values.serviceMonitor.enabled (not .Values.serviceMonitor.tokenSecret.name) -}}
{{- fail "serviceMonitor.tokenSecret.name is empty: a server in Kubernetes wants a token of everybody, of Prometheus too" -}}
{{- end -}}
{{- end -}}

{{/* The variables and volumes that all containers share: those that make tokens see the same store. */}}
{{- define "raymc.env" -}}
{{- if .Values.store.url }}
- name: RAY_MULTICLUSTER_STORE
  value: {{ .Values.store.url | quote }}
{{- end }}
{{- with .Values.store.urlSecret }}
{{- if .name }}
- name: RAY_MULTICLUSTER_STORE
  valueFrom:
    secretKeyRef:
      name: {{ .name }}
      key: {{ .key }}
{{- end }}
{{- end }}
{{- if .Values.store.passwordSecret.name }}
- name: RAY_MULTICLUSTER_STORE_PASSWORD_FILE
  value: /run/secrets/raymc-store/password
{{- end }}
{{- end -}}

{{- define "raymc.mounts" -}}
# By subPath, as a plain file. Otherwise it is a link whose target has a new name after each change,
# and a server with SQLite would take the file for another configuration with another queue.
- name: config
  mountPath: /etc/raymc/clusters.yaml
  subPath: clusters.yaml
  readOnly: true
- name: state
  mountPath: /var/lib/raymc
- name: tmp
  mountPath: /tmp
{{- if .Values.store.passwordSecret.name }}
- name: store-password
  mountPath: /run/secrets/raymc-store
  readOnly: true
{{- end }}
{{- end -}}

{{- define "raymc.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}
