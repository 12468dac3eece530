"""Manifests of kubernetes-sigs/agent-sandbox as documents of Paddock."""
