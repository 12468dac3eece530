"""Section C: warm pools."""

from controller.metrics.catalogue.family import Family, counter, gauge, histogram
from controller.metrics.catalogue.loop import OUTCOMES, REASONS

POOL = ("namespace", "pool")
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
RETIRED = ("age", "outdated", "unhealthy", "scale_down", "room")
STATES = ("warming", "ready", "draining", "failed")

FAMILIES: tuple[Family, ...] = (
    gauge("paddock_pool_desired_containers", "Desired warm containers.", (*POOL, "image")),
    gauge("paddock_pool_max_containers", "Upper bound of the pool, over all hosts; absent where it has none.", POOL),
    gauge(
        "paddock_pool_containers",
        f"Pool members by state ({', '.join(STATES)}).",
        (*POOL, "image", "state"),
        values={"state": STATES},
    ),
)
CLAIMS: tuple[Family, ...] = (
    counter("paddock_pool_claims_total", "Sandboxes that claimed a warm container.", POOL),
    counter("paddock_pool_claim_misses_total", "Sandboxes of a pool's template that found none ready.", POOL),
    histogram("paddock_pool_claim_duration_seconds", "Claim to usable sandbox.", POOL, buckets=SECONDS),
    histogram("paddock_pool_startup_duration_seconds", "Create to ready of a pool member.", POOL, buckets=SECONDS),
    counter(
        "paddock_pool_startup_failures_total",
        f"Failed starts of members ({', '.join(REASONS)}).",
        (*POOL, "reason"),
        values={"reason": REASONS},
        aliases={"reason": OUTCOMES},
    ),
    counter(
        "paddock_pool_members_retired_total",
        f"Members removed unused ({', '.join(RETIRED)}).",
        (*POOL, "reason"),
        values={"reason": RETIRED},
    ),
)
