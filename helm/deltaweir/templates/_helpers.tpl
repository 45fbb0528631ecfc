{{- define "deltaweir.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "deltaweir.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "deltaweir.labels" -}}
{{ include "deltaweir.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "deltaweir.account" -}}
{{- if .Values.serviceAccount.create }}{{ .Values.serviceAccount.name | default (include "deltaweir.name" .) }}
{{- else }}{{ .Values.serviceAccount.name | default "default" }}{{ end }}
{{- end }}

{{- define "deltaweir.secret" -}}
{{- if and .Values.secret.existing .Values.secret.external.enabled }}
{{- fail "secret.existing and secret.external.enabled exclude each other" }}
{{- else if .Values.secret.existing }}{{ .Values.secret.existing }}
{{- else if .Values.secret.external.enabled }}{{ include "deltaweir.name" . }}
{{- else }}{{ fail "pods need a secret: set secret.existing, or secret.external.enabled" }}{{ end }}
{{- end }}

{{- define "deltaweir.secretKeys" -}}
{{- $keys := list "access-key-id" "secret-access-key" "admin-token" "admin-read-token" "kek" "catalog-password" }}
{{- range $setting, $key := .Values.store.secretSettings }}{{ $keys = append $keys $key }}{{ end }}
{{- $keys | uniq | sortAlpha | toJson }}
{{- end }}

{{/* A value as TOML writes it. Helm reads every number as a float, so whole ones are printed as integers. */}}
{{- define "deltaweir.toml" -}}
{{- if kindIs "string" . }}{{ . | quote }}{{ else if kindIs "float64" . }}{{ . | int64 }}{{ else }}{{ . | toJson }}{{ end }}
{{- end }}

{{- define "deltaweir.config" -}}
{{- $secrets := "/etc/deltaweir/secrets" -}}
{{- $name := include "deltaweir.name" . -}}
[server]
listen = "0.0.0.0:9000"
admin_listen = "0.0.0.0:9001"
admin_token = "file:{{ $secrets }}/admin-token"
admin_read_token = "file:{{ $secrets }}/admin-read-token"
admin_hosts = {{ concat (list (printf "%s-admin" $name) (printf "%s-admin.%s.svc" $name .Release.Namespace)) .Values.server.adminHosts | toJson }}
region = {{ .Values.server.region | quote }}
domains = {{ .Values.server.domains | toJson }}
drain_timeout = "{{ .Values.server.drainSeconds | int }}s"
{{- if .Values.server.tlsSecret }}
tls_cert = "/etc/deltaweir/tls/tls.crt"
tls_key = "/etc/deltaweir/tls/tls.key"
{{- else }}
admin_over_http = true # inside the cluster's network; the Service of this port has no address outside
{{- end }}

[log]
filter = {{ .Values.server.log | quote }}

[storage]
data = "/data"
catalog = {{ required "catalog.address: the PostgreSQL of all replicas, postgres://…" .Values.catalog.address | quote }}
catalog_password = "file:{{ $secrets }}/catalog-password"
catalog_connections = {{ .Values.catalog.connections | int }}
backend = "store"
kek = "file:{{ $secrets }}/kek"

[backends.store]
{{- if not .Values.store.settings }}{{ fail "store.settings: the bucket that holds the blobs, {type: s3, bucket: …}" }}{{ end }}
{{- range $setting, $value := .Values.store.settings }}
{{ $setting }} = {{ include "deltaweir.toml" $value }}
{{- end }}
{{- range $setting, $key := .Values.store.secretSettings }}
{{ $setting }} = "file:{{ $secrets }}/{{ $key }}"
{{- end }}

[[users]]
name = "operator"
access_key_id = "file:{{ $secrets }}/access-key-id"
secret_access_key = "file:{{ $secrets }}/secret-access-key"
policy = "admin"
{{- with .Values.limits }}

[limits]
{{- range $limit, $value := . }}
{{ $limit }} = {{ include "deltaweir.toml" $value }}
{{- end }}
{{- end }}
{{- with .Values.moreConfig }}

{{ . | trim }}
{{- end }}
{{- end }}
