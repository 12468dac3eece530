"""What a HostQuota may say: what a Quota may. More than the host has is over-commitment, and the operator's choice."""

from controller.policy.quota import admit as admit
