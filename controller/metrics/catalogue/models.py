"""Section N: use of models through the gateway."""

from controller.metrics.catalogue.family import Family, counter, gauge, histogram

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300)
OUTCOMES = ("ok", "rejected", "limited", "not_found", "refused", "failed", "cancelled", "revoked")

FAMILIES: tuple[Family, ...] = (
    counter(
        "paddock_model_requests_total",
        "Requests for models that ended; rejected: by the provider, refused: by the gateway, limited: by a budget.",
        ("namespace", "provider", "outcome"),
        values={"outcome": OUTCOMES},
    ),
    counter(
        "paddock_model_tokens_total",
        "Tokens of models, reported by providers or estimated.",
        ("namespace", "provider", "direction"),
        values={"direction": ("in", "out")},
    ),
    histogram(
        "paddock_model_first_byte_seconds",
        "Time from a request to the beginning of its provider's answer.",
        ("namespace", "provider"),
        buckets=_SECONDS,
    ),
    gauge("paddock_model_requests_in_flight", "Requests for models in progress."),
    gauge("paddock_model_gateway_up", "1 while the gateway's process serves; absent without providers."),
    counter("paddock_model_gateway_starts_total", "Starts of the gateway's process."),
)
SOURCES: tuple[Family, ...] = (
    gauge(
        "paddock_provider_status_ready",
        "1 when the provider answered last, 0 when it can't be used; absent when it was not tried.",
        ("namespace", "provider"),
    ),
    gauge(
        "paddock_model_server_status_ready",
        "1 when the model server serves, or is idle and starts at the next request; else 0.",
        ("namespace", "model_server"),
    ),
)
