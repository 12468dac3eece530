"""Several hosts on one store: leases, reports of this host, lost and unknown ones, placements by a scheduler."""
