"""Findings of `paddock doctor` about the folders of the settings."""

from collections.abc import Iterator

from controller.kinds.observed.doctor import DoctorFacts, Finding, FolderFacts, Severity

_OTHERS, _OTHERS_WRITE = 0o077, 0o022
_STICKY = 0o1000


def folders(facts: DoctorFacts) -> Iterator[Finding]:
    """Yield findings about host roots, the state folder and secrets; only for an engine on this host."""
    if not facts.local:
        return
    if not facts.host_roots:
        yield Finding("host-roots", Severity.OK, "none are set: no folder of this host is bound into a sandbox")
    for host_root in facts.host_roots:
        yield _root(host_root, facts)
    if facts.state is not None and facts.state.mode is not None:
        yield _state(facts.state)
    if facts.secrets is not None:
        yield _secrets(facts.secrets)


def _root(root: FolderFacts, facts: DoctorFacts) -> Finding:
    """Check one of `host_roots`: its owners and file system are the operator's, and may be open to all of its users."""
    check, meaning = "host-roots", "a sandbox that names a folder below it is not started (MountRefused)"
    if root.mode is None:
        observed = f"{root.path}: {root.trouble or 'there is no such folder'}"
        action = f"create it, or remove it from host_roots: `install -d -o USER {root.path}`"
        return Finding(check, Severity.PROBLEM, observed, meaning, action)
    observed = f"{root.path}: {root.owner}:{root.group}, mode {root.mode:04o}, on {root.file_system or 'unknown'}"
    if root.hosts_own:
        description = f"{observed}; {root.hosts_own}"
        return Finding(check, Severity.PROBLEM, description, meaning, "name a folder of the users in host_roots")
    if root.mode & 0o002 and not root.mode & _STICKY:
        harm = "any user of this host can replace another user's folder there with one of their own"
        return Finding(
            check, Severity.WARNING, f"{observed}; everyone may write there", harm, f"`chmod o-w {root.path}`"
        )
    if root.maps_ids is False:
        harm = "a folder there is bound only if its owner has the same ids as the sandbox's user, or read-only"
        action = f"move {root.path} to ext4, xfs, btrfs or tmpfs (Linux 5.19 maps ids on overlayfs, too)"
        return Finding(check, Severity.WARNING, f"{observed}; ids can't be mapped there", harm, action)
    if root.maps_ids is None:
        if facts.kernel.root:
            harm, action = "it is unknown if sandboxes can write there", "see user.max_user_namespaces, and the log"
        else:
            harm, action = "it is unknown if sandboxes can write there", "run this as root"
        return Finding(check, Severity.WARNING, f"{observed}; it is unknown if ids can be mapped there", harm, action)
    return Finding(check, Severity.OK, f"{observed}; its owners' ids are mapped to those of sandboxes")


def _state(folder: FolderFacts) -> Finding:
    """Check the state folder: a copy of it is easily readable by all, with the store and transcripts."""
    check, action = "state", f"`chmod 700 {folder.path}`"
    observed = f"{folder.path}: {folder.owner}:{folder.group}, mode {folder.mode or 0:04o}"
    if (folder.mode or 0) & _OTHERS_WRITE:
        description = f"{observed}; users other than its owner may write there"
        return Finding(
            check, Severity.PROBLEM, description, "the daemon does not start", f"{action}, and check its contents"
        )
    if (folder.mode or 0) & _OTHERS:
        description = f"{observed}; users other than its owner may read there"
        harm = "the store, transcripts of agents and files of volumes can be read by other users of this host"
        return Finding(check, Severity.WARNING, description, harm, action)
    return Finding(check, Severity.OK, observed)


def _secrets(folder: FolderFacts) -> Finding:
    """Check the folder of secrets: people make it, and who may write there chooses what sandboxes get."""
    check = "secrets"
    if folder.mode is None and not folder.trouble:
        return Finding(check, Severity.OK, f"{folder.path}: does not exist, so there are none")
    meaning = "a sandbox that names a secret is not started (SecretMissing)"
    if folder.mode is None:
        action = f"`install -d -m 0700 -o root {folder.path}`, or set secrets_dir"
        return Finding(check, Severity.PROBLEM, f"{folder.path}: {folder.trouble}", meaning, action)
    observed = f"{folder.path}: {folder.owner}:{folder.group}, mode {folder.mode:04o}"
    if not folder.roots or folder.mode & _OTHERS_WRITE:
        action = f"`chown root {folder.path} && chmod go-w {folder.path}`, and check its contents"
        return Finding(check, Severity.PROBLEM, f"{observed}; users other than root may write there", meaning, action)
    return Finding(check, Severity.OK, observed)
