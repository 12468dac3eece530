"""Parts of Kubernetes' own API that kubectl needs: OpenAPI, reviews of access, sandboxes by the name of pods."""
