"""Specs of the kinds besides sandboxes that have metrics: quota, template, warm pool."""

OTHER_KINDS = """
apiVersion: paddock/v1alpha1
kind: Quota
metadata: {name: all}
spec: {hard: {cpu: 8, memory: 4Gi, pids: 1000, sandboxes: 9, disk: 1Gi, gpus: 1}}
---
apiVersion: paddock/v1alpha1
kind: SandboxTemplate
metadata: {name: tiny}
spec: {image: "paddock/test-tiny:1", command: ["sleep", "1000000"]}
---
apiVersion: paddock/v1alpha1
kind: SandboxPool
metadata: {name: warm}
spec: {templateRef: {name: tiny}, warmReplicas: 1}
---
"""
