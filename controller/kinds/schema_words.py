"""What each field means, in words for `paddock explain` and for editors: `Model.field`, or `field` wherever it stands.

The form that a value must have comes from the model; these words say what it does.
"""

from collections.abc import Mapping

WORDS: Mapping[str, str] = {
    "name": "The name.",
    "Metadata.name": "The name, unique for its kind in its namespace; it cannot be changed.",
    "Metadata.namespace": "The project or tenant it belongs to; `default` if left out.",
    "Metadata.labels": "Short words to select by: `paddock get sandboxes -l app=web`.",
    "Metadata.annotations": "Notes that nothing selects by.",
    "Metadata.resourceVersion": "If given, the change is refused unless the object is still at this version.",
    "Metadata.uid": "If given, the change is refused unless it is still the same object.",
    "Metadata.generation": "Counts the changes of the spec; only Paddock sets it.",
    "Metadata.creationTimestamp": "When it was made; only Paddock sets it.",
    "Metadata.deletionTimestamp": "When its deletion was asked for; only Paddock sets it.",
    "Metadata.finalizers": "What is to be done before it goes. Paddock has its own; a patch adds or takes off others.",
    "Metadata.ownerReferences": "The objects it goes with: once all of them are gone, it is deleted.",
    "OwnerReference.apiVersion": "The version that the owner is written for.",
    "OwnerReference.kind": "The owner's kind.",
    "OwnerReference.name": "The owner's name, in the same namespace or on the host.",
    "OwnerReference.uid": "If given, the change is refused unless it is still the same owner; filled in if left out.",
    "OwnerReference.controller": "Whether the owner manages this object; at most one does. Paddock does not read it.",
    "OwnerReference.blockOwnerDeletion": "Taken for Kubernetes' sake: every dependent holds up a deletion in the "
    "foreground.",
    "SandboxSpec.template": "What to run, written out here. One of `template` and `templateRef` is needed.",
    "SandboxSpec.templateRef": "What to run, by the name of a SandboxTemplate of the same namespace.",
    "TemplateRef.name": "The SandboxTemplate's name.",
    "SandboxSpec.poolPolicy": "Whether it takes over a ready box of a SandboxPool of its template: Prefer: where there "
    "is one; Require: it is one of the pool's, and waits while that is at its maximum; Never.",
    "SandboxPoolSpec.templateRef": "What its members run, by the name of a SandboxTemplate of the same namespace.",
    "SandboxPoolSpec.warmReplicas": "Members kept ready before anyone asks.",
    "SandboxPoolSpec.maxReplicas": "Most boxes of the pool, warm and claimed together; no bound if left out.",
    "SandboxPoolSpec.startupDeadlineSeconds": "A member that its startup and readiness probes do not call ready within "
    "so many seconds is stopped, and started again after its back-off.",
    "SandboxPoolSpec.shutdownGracePeriodSeconds": "Seconds from SIGTERM to SIGKILL when a member is given up.",
    "SandboxPoolSpec.maxAgeSeconds": "A member that nobody claimed for so long is replaced by a fresh one.",
    "SandboxPoolSpec.priority": "The pool of the highest is filled first and gives way last; all come after sandboxes.",
    "SandboxPoolSpec.quota": "What the pool's members and the sandboxes that came of it may hold together, within the "
    "quotas of the namespace and of the host.",
    "PoolQuota.cpu": "The sum of CPU limits.",
    "PoolQuota.memory": "The sum of memory limits.",
    "PoolQuota.pids": "The sum of limits of processes and threads.",
    "PoolQuota.perSandbox": "What one box of the pool may have at most.",
    "SandboxPoolSpec.updateStrategy": "What a changed template does to members: OnReplenish: they are replaced one by "
    "one, each once a new one is ready.",
    "SandboxSpec.runState": "Running; Suspended: stopped, and started when this is Running again; Paused: frozen, "
    "memory kept.",
    "SandboxSpec.restartPolicy": "Whether it is started again when it ends by itself: Always; OnFailure: not after "
    "exit code 0; Never.",
    "SandboxSpec.lifecycle": "How long things may take.",
    "SandboxSpec.priority": "Who is first when there is no room for all (higher first, then older); stops nothing.",
    "QuotaSpec.hard": "What all sandboxes of the namespace may hold together.",
    "HostQuotaSpec.hard": "What all sandboxes of the host may hold together; the rest comes from its real size.",
    "perSandbox": "What one sandbox may ask for.",
    "HardLimits.cpu": "The sum of CPU limits of sandboxes that run or are about to.",
    "HardLimits.memory": "The sum of memory limits of sandboxes that run or are about to.",
    "HardLimits.disk": "The sum of what sandboxes reserve of the disk, stopped ones too.",
    "HardLimits.gpus": "The sum of GPUs of sandboxes that run or are about to.",
    "HardLimits.pids": "The sum of limits of processes and threads of sandboxes that run or are about to.",
    "HardLimits.sandboxes": "How many sandboxes there may be, suspended and finished ones included.",
    "PerSandbox.cpu": "Processor time.",
    "PerSandbox.memory": "Memory, with what is written to tmpfs.",
    "PerSandbox.disk": "What it reserves of the disk.",
    "PerSandbox.gpus": "GPUs.",
    "PerSandbox.pids": "Processes and threads.",
    "Lifecycle.startupDeadlineSeconds": "Seconds in which the startup and readiness probes must have passed; one that "
    "still fails then is stopped (StartFailed) and started again with back-off. No deadline if left out.",
    "Lifecycle.shutdownGracePeriodSeconds": "Seconds from SIGTERM to SIGKILL when it is stopped.",
    "Lifecycle.activeDeadlineSeconds": "Seconds after its first start at which it is stopped for good, until its spec "
    "changes; none if left out.",
    "Lifecycle.ttlSecondsAfterFinished": "Seconds after which a finished sandbox is deleted; never if left out.",
    "NetworkSpec.localNetwork": "Whether a sandbox of level production may reach private ranges, too; only where the "
    "operator's setting local_network allows it.",
    "NetworkSpec.allowedHosts": "Whole host names that it may reach by HTTP on port 80 and TLS on 443, through its "
    "proxy; `*.` in front stands for one label or more. Left out: what its level lets through unasked.",
    "Lifecycle.idleTimeoutSeconds": "Seconds without use (exec, followed log, processor time) after which `onIdle` "
    "happens.",
    "Lifecycle.keepRunning": "Never idle: for services that run unattended.",
    "Lifecycle.onIdle": "Suspend: stopped, and started again by the next exec; Delete: the sandbox is deleted.",
    "resources": "What it may use.",
    "Resources.limits": "Upper bounds, changed in place; what is left out is filled in by the template, then by the "
    "security level.",
    "Resources.cpuShares": "Weight against other sandboxes when the host's processors are all busy; 1024 is ordinary.",
    "ResourceLimits.cpu": "Processor time.",
    "ResourceLimits.memory": "Memory, with what is written to tmpfs.",
    "ResourceLimits.disk": "Disk to be reserved for it in the quotas, from its admission until it is gone.",
    "DiskRules.enforcement": (
        "Required: refused where this host can't hold it to its disk limit. BestEffort: measured there, and stopped "
        "beyond it."
    ),
    "ResourceLimits.gpus": "GPUs, as `docker run --gpus` gives them; another number makes a new container.",
    "ResourceLimits.pids": "Processes and threads.",
    "image": "The image. It is pinned to its digest at each change of the spec: a tag that moves recreates nothing.",
    "command": "The command and its arguments; the image's own if left out.",
    "user": "Who it runs as, in numbers; an id that no host user has if left out.",
    "workingDir": "The folder it starts in; the image's own if left out.",
    "env": "Variables of its environment. Anyone who may look at the container can read them: no secrets here.",
    "EnvVar.name": "The variable's name.",
    "EnvVar.value": "Its value.",
    "tmpfs": "Folders in memory, writable by its user, gone with the container; they count as memory.",
    "TmpfsMount.mountPath": "Where it appears in the sandbox.",
    "TmpfsMount.size": "How much it holds.",
    "workspace": "Its folder to work in.",
    "WorkspaceMount.mountPath": "Where it appears in the sandbox.",
    "WorkspaceMount.size": "How much it holds in memory, where the sandbox names no folder for it.",
    "WorkspaceSource.hostPath": "A folder of the host, below a root that the operator names for that. Its owner's "
    "files are the sandbox's own in there; those of others are nobody's.",
    "WorkspaceSource.readOnly": "Nothing can be written there; full-isolation asks for that.",
    "startup": "Asked first; the other two wait until it has passed. What fails it too often is stopped.",
    "readiness": "Until it has passed the sandbox is not Ready; then it is asked no more until the next start.",
    "liveness": "Asked for as long as it runs. What fails it too often is stopped, and restarted by restartPolicy.",
    "execDeadlineSeconds": "Seconds that a command (exec, shell, run) may take if it asks for none, and the most "
    "that it may ask for; changed at once. Left out: the daemon's own limit, and as many as are asked for.",
    "exec": "A command in the sandbox; exit code 0 passes. Writing more than 64Ki fails.",
    "ExecAction.command": "The command and its arguments, without a shell.",
    "httpGet": "A GET request to 127.0.0.1 in the sandbox; a status from 200 to 399 passes; no redirect is followed.",
    "HttpGetAction.port": "The port in the sandbox.",
    "HttpGetAction.path": "The path, with a query if there is one.",
    "HttpGetAction.scheme": "HTTPS looks at no certificate.",
    "HttpGetAction.host": "The Host header; localhost if left out. The request always goes to the sandbox itself.",
    "tcpSocket": "A connection to 127.0.0.1 in the sandbox; one that is taken passes.",
    "TcpSocketAction.port": "The port in the sandbox.",
    "initialDelaySeconds": "Seconds after the start before it is asked first.",
    "periodSeconds": "Seconds from one time to the next.",
    "timeoutSeconds": "Seconds after which it has failed; a command is killed then.",
    "successThreshold": "Successes in a row that it takes to pass.",
    "failureThreshold": "Failures in a row that it takes to fail.",
    "securityLevel": "What it is kept from; the strictest level is the default.",
}
