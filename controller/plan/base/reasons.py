"""Reasons of conditions that several deciders know: one says them, another goes by them."""

CLAIMING = "Claiming"  # it takes over a warm member, whose limits are not its own yet
EXHAUSTED = "PoolExhausted"
SHARED = "SharedVolume"
# Of a sandbox that its pool gives nothing now: it is not started, and decided again in every pass.
WITHHELD = (EXHAUSTED, SHARED)
IMAGE_PULLING = "ImagePulling"  # while its image comes
