"""The one place that states Paddock's version and the API version it speaks."""

VERSION = "0.1.0"
API_GROUP = "paddock"
API_VERSION = "paddock/v1alpha1"
