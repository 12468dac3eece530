"""Dashboards of capacity: warm pools, and quotas."""

from deploy.grafana.panels import CORES, NAMESPACE, TO_SANDBOX, Panel, Row, Variable, make

OF = 'namespace=~"$namespace", pool=~"$pool"'
POOL = Variable("pool", 'label_values(paddock_pool_desired_containers{namespace=~"$namespace"}, pool)')
BY_POOL = "{{namespace}}/{{pool}}"
NO_POOL = "There is no SandboxPool in these namespaces"
BY_QUOTA = "{{scope}} {{namespace}}"
_RESOURCES = (
    ("CPU", "cpu_used_cores", "cpu_limit_cores", CORES),
    ("Memory", "memory_used_bytes", "memory_limit_bytes", "bytes"),
    ("PIDs", "pids_used", "pids_limit", "short"),
    ("Sandboxes", "sandboxes_used", "sandboxes_limit", "short"),
    ("Disk", "fs_used_bytes", "fs_limit_bytes", "bytes"),
    ("GPUs", "gpus_used", "gpus_limit", "short"),
)


def pools() -> str:
    """Build the dashboard of warm pools."""
    about = "Warm pools: members, claims, and what starts cold."
    return make("paddock-pools", "Paddock / Pools", about, (_members(), _claims()), (NAMESPACE, POOL))


def quotas() -> str:
    """Build the dashboard of quotas."""
    about = "Quotas of the host and of namespaces: reserved amounts, and what waits for them."
    return make("paddock-quotas", "Paddock / Quotas", about, (_full(), _amounts(), _waiting()), ())


def _members() -> Row:
    return Row(
        "Members",
        (
            Panel(
                "Ready members",
                "Members that a new sandbox can take over now.",
                ((f'sum by (namespace, pool) (paddock_pool_containers{{{OF}, state="ready"}})', BY_POOL),),
                kind="stat",
                names="too",
                width=8,
                empty=NO_POOL,
            ),
            Panel(
                "Filled",
                "Ready members as a share of the desired ones. Empty pools make sandboxes start cold.",
                (
                    (
                        f'sum by (namespace, pool) (paddock_pool_containers{{{OF}, state="ready"}})'
                        f" / sum by (namespace, pool) (paddock_pool_desired_containers{{{OF}}} > 0)",
                        BY_POOL,
                    ),
                ),
                unit="percentunit",
                kind="bars",
                width=8,
                most=1,
                falling=True,
                warn=0.99,
                bad=0.5,
                empty="No pool wants members",
            ),
            Panel(
                "Members by state",
                "Members that warm up, are ready, drain or failed: areas on top of each other.",
                ((f"sum by (state) (paddock_pool_containers{{{OF}}})", "{{state}}"),),
                width=8,
                stacked=True,
                decimals=0,
                empty=NO_POOL,
            ),
        ),
    )


def _claims() -> Row:
    return Row(
        "Claims",
        (
            Panel(
                "Claims and misses",
                "Sandboxes a second that took a member over, and that found none ready.",
                (
                    (
                        f"sum by (namespace, pool) (rate(paddock_pool_claims_total{{{OF}}}[$__rate_interval]))",
                        f"{BY_POOL} claimed",
                    ),
                    (
                        f"sum by (namespace, pool) (rate(paddock_pool_claim_misses_total{{{OF}}}[$__rate_interval]))",
                        f"{BY_POOL} missed",
                    ),
                ),
                unit="ops",
                width=12,
                empty="No sandbox of a pool's template was created",
            ),
            Panel(
                "Claim latency",
                "Time from a claim to a usable sandbox, p50 and p99.",
                tuple(
                    (
                        f"histogram_quantile({share}, sum by (le)"
                        f" (rate(paddock_pool_claim_duration_seconds_bucket{{{OF}}}[5m])))",
                        name,
                    )
                    for share, name in ((0.5, "p50"), (0.99, "p99"))
                ),
                unit="s",
                width=12,
                empty="No claim in the last five minutes",
            ),
            Panel(
                "Startup of members",
                "Time from create to ready of a member, p50 and p99.",
                tuple(
                    (
                        f"histogram_quantile({share}, sum by (le)"
                        f" (rate(paddock_pool_startup_duration_seconds_bucket{{{OF}}}[15m])))",
                        name,
                    )
                    for share, name in ((0.5, "p50"), (0.99, "p99"))
                ),
                unit="s",
                empty="No member started in the last quarter of an hour",
            ),
            Panel(
                "Failed starts",
                "Failed starts of members in five minutes, by reason.",
                ((f"sum by (reason) (increase(paddock_pool_startup_failures_total{{{OF}}}[5m])) > 0", "{{reason}}"),),
                decimals=0,
                warn=1,
                empty="No start of a member failed",
            ),
            Panel(
                "Retired members",
                "Members removed unused in an hour, by reason.",
                ((f"sum by (reason) (increase(paddock_pool_members_retired_total{{{OF}}}[1h])) > 0", "{{reason}}"),),
                decimals=0,
                empty="No member was removed unused",
            ),
        ),
    )


def _full() -> Row:
    return Row(
        "Reserved share",
        tuple(
            Panel(
                f"{name} reserved",
                f"Reserved {name if name.isupper() or name in ('PIDs', 'GPUs') else name.lower()}"
                " as a share of the quota. What does not fit waits.",
                ((f"paddock_quota_{used} / (paddock_quota_{limit} > 0)", BY_QUOTA),),
                unit="percentunit",
                kind="bars",
                most=1,
                warn=0.8,
                bad=0.95,
                height=6,
                empty="No quota bounds it",
            )
            for name, used, limit, _ in _RESOURCES
        ),
    )


def _amounts() -> Row:
    return Row(
        "Over time",
        tuple(
            Panel(
                f"{name} over time",
                f"Reserved {name if name in ('CPU', 'PIDs') else name.lower()}, and the quota.",
                (
                    (f"paddock_quota_{used}", BY_QUOTA),
                    (f"paddock_quota_{limit}", f"{BY_QUOTA} limit"),
                ),
                unit=unit,
                width=6,
                decimals=0 if unit == "short" else None,
                empty="No quota bounds it",
            )
            for name, used, limit, unit in _RESOURCES[:4]
        ),
    )


def _waiting() -> Row:
    return Row(
        "Waiting",
        (
            Panel(
                "Pending now",
                "Sandboxes pending for quota, by resource and scope.",
                (("sum by (scope, resource) (paddock_quota_waiting_sandboxes) > 0", "{{resource}} {{scope}}"),),
                kind="bars",
                width=8,
                decimals=0,
                warn=1,
                empty="No sandbox waits for a quota",
            ),
            Panel(
                "Became pending",
                "Sandboxes that became pending in five minutes, by resource.",
                (("sum by (resource) (increase(paddock_quota_rejections_total[5m])) > 0", "{{resource}}"),),
                width=8,
                decimals=0,
                empty="No sandbox had to wait",
            ),
            Panel(
                "Who waits",
                "Sandboxes that wait for a quota. `paddock why NAME` says for which.",
                (('paddock_sandbox_status_waiting_reason{reason="QuotaExceeded"} == 1', "{{namespace}}/{{sandbox}}"),),
                kind="bars",
                width=8,
                decimals=0,
                empty="No sandbox waits for a quota",
                links=(TO_SANDBOX,),
            ),
        ),
    )
