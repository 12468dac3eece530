"""Section C: warm pools."""

from controller.metrics.catalogue.family import Family, counter, gauge

POOL = ("namespace", "pool")
STATES = ("warming", "ready", "draining", "failed")

FAMILIES: tuple[Family, ...] = (
    gauge("paddock_pool_desired_containers", "Warm containers wanted.", (*POOL, "image")),
    gauge("paddock_pool_max_containers", "Upper bound of the pool; absent where it has none.", POOL),
    gauge(
        "paddock_pool_containers",
        f"Pool members by state ({', '.join(STATES)}).",
        (*POOL, "image", "state"),
        values={"state": STATES},
    ),
)
CLAIMS: tuple[Family, ...] = (
    counter("paddock_pool_claims_total", "Sandboxes that took a warm container over.", POOL),
    counter("paddock_pool_claim_misses_total", "Sandboxes of a pool's template that found none ready.", POOL),
)
