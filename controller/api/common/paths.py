"""Paths of routes that middleware treats in a way of their own."""

import re

from controller.api.common.models import PREFIX

PROXIED = re.compile(PREFIX + r"/namespaces/[^/]+/sandboxes/[^/]+/proxy/.*")


STREAMED = re.compile(
    PREFIX
    + r"/(namespaces/[^/]+/[^/]+/[^/]+/files(/archive)?|namespaces/[^/]+/sandboxsnapshots/[^/]+/archive|images/build)|"
    + PROXIED.pattern
)

DISCOVERY = "/sd/hosts"

# Of Kubernetes' own groups, as kubectl asks for them.
PODS, PODS_EVERYWHERE = "/api/v1/namespaces/{namespace}/pods", "/api/v1/pods"
OPENAPI_V2, OPENAPI_V3 = "/openapi/v2", "/openapi/v3"
OPENAPI_V3_KINDS = f"{OPENAPI_V3}{PREFIX}"
ACCESS_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
RULES_REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
SELF_REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEWS = (ACCESS_REVIEW, RULES_REVIEW, SELF_REVIEW)
# What every caller may ask: it tells of the API, and of themselves.
OF_KUBECTL = ("/api/v1", OPENAPI_V2, OPENAPI_V3, OPENAPI_V3_KINDS, *REVIEWS)
# How newer versions of kubectl send a review.
KUBERNETES_PROTOBUF = "application/vnd.kubernetes.protobuf"
