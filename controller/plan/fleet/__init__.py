"""Several hosts: which one gets a sandbox or a part of a pool, and what is done about a lost one."""
